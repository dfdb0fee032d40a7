/* Making and unmaking contexts of the client: see context.c. */
#ifndef BACKEND_HOST_CONTEXT_H
#define BACKEND_HOST_CONTEXT_H

#include "client/state.h"

CUresult fgw_context_destroy(struct fgw_worker *worker, struct fgw_context *context);

#endif
