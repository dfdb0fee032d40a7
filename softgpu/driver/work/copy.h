/* Copies of boxes of rows; what all copying calls come down to. */
#ifndef SOFTGPU_COPY_H
#define SOFTGPU_COPY_H

#include "base/driver.h"

struct sgp_box {
    uintptr_t destination;
    uintptr_t source;
    bool destination_is_device; /* the caller says so: then it must be */
    bool source_is_device;
    size_t width; /* bytes */
    size_t height;
    size_t depth;
    size_t destination_pitch;
    size_t source_pitch;
    size_t destination_slice;
    size_t source_slice;
    CUarray destination_array, source_array; /* of which it is memory; NULL: of none */
};

struct fgv_copy_side;
struct fgv_copy_size;

/* As addresses, from what the program says. */
CUresult sgp_box_of(struct sgp_box *box, const struct fgv_copy_side *to, const struct fgv_copy_side *from,
                    const struct fgv_copy_size *size);

/* With the lock. */
CUresult sgp_copy(struct CUctx_st *context, struct CUstream_st *stream, const struct sgp_box *box, bool is_async);

/* Whether the box can be copied: CUDA_SUCCESS, also for one without bytes. */
CUresult sgp_box_check(const struct sgp_box *box);
/* Queues a copy that reads and writes the addresses when it runs, and is a fault where they are none by now. */
CUresult sgp_box_submit(struct CUstream_st *stream, const struct sgp_box *box);
/* Whether it has a side in host memory that is not pinned. */
bool sgp_box_is_pageable(const struct sgp_box *box);
CUresult sgp_set_check(const CUDA_MEMSET_NODE_PARAMS *set);
CUresult sgp_set_submit(struct CUstream_st *stream, const CUDA_MEMSET_NODE_PARAMS *set); /* likewise */

/* Without the lock: a whole call. */
CUresult sgp_set(CUdeviceptr destination, size_t pitch, uint32_t value, uint32_t element_bytes, size_t width,
                 size_t height, CUstream handle, bool is_async);

#endif
