/*
 * Options of the driver's just-in-time compiler, of links and of loads alike. No option that is a pointer comes from
 * the guest; the logs are the worker's own, of bounded size, and their text goes back in a chunk.
 */
#ifndef BACKEND_HOST_JIT_H
#define BACKEND_HOST_JIT_H

#include "client/service.h"

#define FGW_JIT_MAX_OPTIONS ((uint32_t)CU_JIT_NUM_OPTIONS)
#define FGW_JIT_OWN_OPTIONS (2 * FGV_JIT_NR_LOGS) /* a buffer and its size for each log */

struct fgw_jit_options {
    uint32_t nr;
    CUjit_option options[FGW_JIT_MAX_OPTIONS + FGW_JIT_OWN_OPTIONS];
    void *values[FGW_JIT_MAX_OPTIONS + FGW_JIT_OWN_OPTIONS];
};

/* What the guest asks for; not checked. */
struct fgw_jit_sizes {
    uint32_t nr_options;
    uint32_t log_bytes[FGV_JIT_NR_LOGS];
};

/* Stays where it is for as long as the driver may write its logs. */
struct fgw_jit {
    struct fgw_jit_options options;
    uint32_t log_bytes[FGV_JIT_NR_LOGS]; /* room in `logs` */
    char logs[];
};

/* Takes the pairs at the start of the payload. False: too many, or one that is not the guest's to set. */
bool fgw_jit_take(const struct fgw_request *request, uint32_t nr, struct fgw_jit_options *options);
/* How large a fgw_jit has to be, and fills zeroed memory of that size. False: as above. */
size_t fgw_jit_bytes(const struct fgw_jit_sizes *sizes);
bool fgw_jit_init(struct fgw_jit *jit, const struct fgw_jit_sizes *sizes, const struct fgw_request *request);
/* What the driver said beside this verdict, its logs into the parts of the chunk. */
struct fgv_jit_said fgw_jit_tell(struct fgw_worker *worker, const struct fgw_jit *jit, CUresult verdict,
                                 uint32_t chunk);
/* What the driver would have said to an input that it must not see. */
void fgw_jit_note_refusal(struct fgw_jit *jit, const char *name);

#endif
