/*
 * Why replay cannot move this client's program: what of it depends on addresses that the driver chose (enum fgw_bound).
 * It is known at any time without a walk over what the client has: images are counted as they come and go, by what is
 * in them, and the table counts its handles.
 *
 * What is in a large image a thread finds out, of which the loop hears here; until then it counts as one that cannot be
 * read.
 */
#ifndef BACKEND_HOST_BOUND_H
#define BACKEND_HOST_BOUND_H

#include "calls/state.h"

/* cffi: begin */
void fgw_worker_set_binds(struct fgw_worker *worker, fgw_binds_fn binds);
/* Called from any thread, once for each ticket of which the answer was FGW_BOUND_UNKNOWN. */
void fgw_image_binds(uint64_t ticket, uint32_t bits);
/* cffi: end */

/* Of one image, in what hangs on its handle. */
struct fgw_bound_image {
    uint32_t bits;
    struct fgw_ticket *ticket; /* NULL: they are known */
};

/* An image that is kept, and that goes. */
void fgw_bound_add(struct fgw_worker *worker, struct fgw_bound_image *bound, const uint8_t *image,
                   uint64_t image_bytes);
void fgw_bound_remove(struct fgw_worker *worker, struct fgw_bound_image *bound);
/* One that is not. */
void fgw_bound_add_unkept(struct fgw_worker *worker);
void fgw_bound_remove_unkept(struct fgw_worker *worker);

/* A module or a library has a managed variable, and one goes that has. */
void fgw_bound_add_managed(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number);
void fgw_bound_remove_managed(struct fgw_worker *worker);

/* Gives bits of enum fgw_bound; 0: replay can move it, as far as is known before that is tried. Where no images are
 * kept it never does, and there is what keeps it from a checkpoint alone. */
uint32_t fgw_bound_of(struct fgw_worker *worker);

#endif
