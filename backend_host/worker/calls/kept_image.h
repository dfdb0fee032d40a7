/* Images of modules and libraries, kept so that these can be saved: see kept_image.c. */
#ifndef BACKEND_HOST_KEPT_IMAGE_H
#define BACKEND_HOST_KEPT_IMAGE_H

#include "calls/state.h"
#include "client/kind.h"
#include "client/service.h"

/* cffi: begin */
/* Images are kept from now on, of so many bytes together; 0: none, which is so until it is told otherwise. */
void fgw_kept_image_limit(struct fgw_worker *worker, uint64_t most_bytes);
/* cffi: end */

/* Hangs the image on the handle that was loaded from it by this request, of the shape that modules and libraries have
 * in common; the bytes are this file's then. False: it is not kept. */
bool fgw_kept_image_attach(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, uint8_t *image,
                           uint64_t image_bytes, const struct fgw_request *request);

/* Of a module or a library. */
void fgw_image_release(struct fgw_worker *worker, const struct fgw_handle *handle);
const char *fgw_image_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver);
const char *fgw_image_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved);

#endif
