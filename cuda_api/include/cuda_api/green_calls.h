/* What the calls of cuda_api/common/green_calls ask of the library that they are part of. */
#ifndef CUDA_API_GREEN_CALLS_H
#define CUDA_API_GREEN_CALLS_H

#include "cuda_api/types.h"

struct fgv_green_ops {
    /* CUDA_ERROR_NOT_SUPPORTED, or why no call is answered. */
    CUresult (*refuse)(void);
};

/* Lends these calls their ops, which stay valid for the life of the process. Once, in a constructor of the library. */
void fgv_green_set_ops(const struct fgv_green_ops *ops);

#endif
