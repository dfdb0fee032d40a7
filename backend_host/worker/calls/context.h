/* Making and unmaking contexts of the client: see context.c. */
#ifndef BACKEND_HOST_CONTEXT_H
#define BACKEND_HOST_CONTEXT_H

#include "client/state.h"

CUresult fgv_context_destroy(struct fgv_worker *worker, struct fgv_context *context);

#endif
