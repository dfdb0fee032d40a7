/* Memory of modules and libraries under the vGPU's quota: see image_memory.c. */
#ifndef BACKEND_HOST_IMAGE_MEMORY_H
#define BACKEND_HOST_IMAGE_MEMORY_H

#include "client/state.h"

/* cffi: begin */
void fgw_worker_set_needs(struct fgw_worker *worker, fgw_needs_fn needs);
/* cffi: end */

uint64_t fgw_image_needs(struct fgw_worker *worker, const void *image, uint64_t image_bytes);
/* Before an image is loaded: takes what the driver will. False, and nothing taken, where that does not fit, or the
 * vGPU has as many as it may. */
bool fgw_image_memory_take(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t needs_bytes);
void fgw_image_memory_give(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t needs_bytes);
/* There are so many contexts now, or are to be: false, and nothing changed, when libraries do not fit into them all. */
bool fgw_image_memory_settle(struct fgw_worker *worker, uint32_t nr_contexts);

#endif
