/*
 * The calls that copy boxes and rows of arrays, brought into one form: cuda_api/common/copy_calls, which both of our
 * libcuda.so.1 libraries have. What a program says of the sides is checked and carried out by the library that the
 * calls are part of.
 */
#ifndef CUDA_API_COPY_CALLS_H
#define CUDA_API_COPY_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"

/* One side as CUDA's structs describe it: `host` or `device` or `array`, as `type` says. */
struct fgv_copy_side {
    CUmemorytype type;
    uint64_t host;
    CUdeviceptr device;
    CUarray array;
    uint64_t x_bytes, y, z;
    uint64_t pitch_bytes;
    uint64_t height; /* rows of a slice */
};

struct fgv_copy_size {
    uint64_t width_bytes, height, depth;
};

/* The sides of CUDA's struct, which has them in two sets of members. */
struct fgv_copy_side fgv_copy_source(const CUDA_MEMCPY3D *copy);
struct fgv_copy_side fgv_copy_destination(const CUDA_MEMCPY3D *copy);

/* What these calls ask of the library that they are part of. */
struct fgv_copy_ops {
    /* Checks both sides and copies. `waits`: for the calls without a stream, which may still name that of the thread.
     */
    CUresult (*box)(const struct fgv_copy_side *to, const struct fgv_copy_side *from, const struct fgv_copy_size *size,
                    CUstream stream, bool waits);
    bool (*is_context)(CUcontext context);
};

/* Lends these calls their ops, which stay valid for the life of the process. Once, in a constructor of the library. */
void fgv_copy_set_ops(const struct fgv_copy_ops *ops);

#endif
