/* Contexts of the client: see context.c. */
#ifndef BACKEND_HOST_CONTEXT_H
#define BACKEND_HOST_CONTEXT_H

#include "client/kind.h"
#include "client/service.h"
#include "client/state.h"

/* Whether a request to destroy a context comes from its last user, who looks at it no more. */
bool fgw_context_is_released(struct fgw_worker *worker, const struct fgw_request *request);
/* Whether a request to destroy a context is about the primary one. */
bool fgw_context_is_primary(struct fgw_worker *worker, const struct fgw_request *request);
CUresult fgw_context_destroy(struct fgw_worker *worker, struct fgw_context *context);
const char *fgw_context_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver);
const char *fgw_context_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved);

#endif
