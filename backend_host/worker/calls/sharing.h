/* Memory of the vGPU's other programs in this one: see sharing.c. */
#ifndef BACKEND_HOST_WORKER_SHARING_H
#define BACKEND_HOST_WORKER_SHARING_H

#include "calls/state.h"

/* What was opened in this context is closed; NULL: in any. */
void fgw_sharing_drop_context(struct fgw_worker *worker, const struct fgw_context *context);

#endif
