/* Managed memory is allocated and freed. */
#ifndef FRONTEND_GUEST_ALLOCATE_H
#define FRONTEND_GUEST_ALLOCATE_H

#include "cuda_api/types.h"

struct fgv_context;
struct fgv_range;

/* Frees managed memory that lies on the device. */
CUresult fgv_managed_free(const struct fgv_range *range);
/* Gives all that a context has of it back, while the worker has the context. */
void fgv_managed_release(const struct fgv_context *context);

#endif
