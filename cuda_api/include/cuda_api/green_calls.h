/* What the calls of cuda_api/common/green_calls ask of the library that they are part of. */
#ifndef CUDA_API_GREEN_CALLS_H
#define CUDA_API_GREEN_CALLS_H

#include "cuda_api/types.h"

/* CUDA_ERROR_NOT_SUPPORTED, or why no call is answered. */
__attribute__((visibility("hidden"))) CUresult fgv_green_refuse(void);

#endif
