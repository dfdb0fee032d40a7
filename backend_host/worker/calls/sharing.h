/* Memory of the vGPU's other programs in this one: see sharing.c. */
#ifndef BACKEND_HOST_WORKER_SHARING_H
#define BACKEND_HOST_WORKER_SHARING_H

#include "calls/state.h"

/* Has the daemon find what has this key, into worker->daemon.found. CUDA_ERROR_NOT_READY: it has not answered yet.
 * CUDA_ERROR_INVALID_VALUE: there is nothing. After any but the first, fgw_sharing_found. */
CUresult fgw_sharing_find(struct fgw_worker *worker, const struct fgw_key *key);
/* What was found is not needed any more. */
void fgw_sharing_found(struct fgw_worker *worker);
/* What was opened in this context is closed; NULL: in any. */
void fgw_sharing_drop_context(struct fgw_worker *worker, const struct fgw_context *context);

#endif
