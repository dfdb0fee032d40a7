/* Operations on values in memory as data: what a command of a stream does, or a node of a graph. All with the lock. */
#ifndef SOFTGPU_VALUES_H
#define SOFTGPU_VALUES_H

#include "base/driver.h"

struct CUstream_st;

struct sgp_values {
    uint32_t nr;
    CUstreamBatchMemOpParams list[];
};

/* A copy of what the program passed, if it can be done. The caller frees. */
CUresult sgp_values_new(const CUstreamBatchMemOpParams *list, uint32_t nr, struct sgp_values **made);
CUresult sgp_values_copy(const struct sgp_values *from, struct sgp_values **made);
CUresult sgp_values_submit(struct CUstream_st *stream, const struct sgp_values *values);

#endif
