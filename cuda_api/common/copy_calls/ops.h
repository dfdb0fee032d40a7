/* What the library lent, for the files of this folder; libraries include cuda_api/copy_calls.h only. */
#ifndef CUDA_API_COPY_CALLS_OPS_H
#define CUDA_API_COPY_CALLS_OPS_H

#include "cuda_api/copy_calls.h"

const struct fgv_copy_ops *fgv_copy_ops_get(void);

#endif
