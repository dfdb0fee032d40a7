/* Variants of kernels that run a part of a grid: see variant.c. */
#ifndef BACKEND_HOST_VARIANT_H
#define BACKEND_HOST_VARIANT_H

#include "client/kernel.h"
#include "parts/state.h"

/* cffi: begin */
void fgw_worker_set_slicing(struct fgw_worker *worker, const struct fgw_slicing_settings *settings,
                            const struct fgw_variant_maker *maker);
/* cffi: end */

void fgw_image_keep(struct fgw_worker *worker, uint32_t owner_kind, uint64_t owner, const void *image, uint64_t bytes);
/* A module or a library is gone: its image is forgotten. */
void fgw_image_forget(struct fgw_worker *worker, const struct fgw_handle *handle);
/* Of a kernel or function. */
void fgw_kernel_release(struct fgw_worker *worker, const struct fgw_handle *handle);
/* The variant of a kernel in the current context, made if need be; NULL: `why` the kernel runs whole, this time or
 * always. Unless it is made beside, nothing may be on the device. */
struct fgw_variant *fgw_variant_of(struct fgw_worker *worker, const struct fgw_handle *handle,
                                   struct fgw_kernel *kernel, enum fgv_whole *why);
/* Whether asking for a variant that is not there only begins to make it, or finds that it is not made yet. */
bool fgw_variant_is_made_beside(const struct fgw_worker *worker, const struct fgw_kernel *kernel);
void fgw_variant_drop(struct fgw_worker *worker, struct fgw_variant *variant);
/* The context is about to be destroyed. */
void fgw_variants_drop_context(struct fgw_worker *worker, const struct fgw_context *context);
/* A large launch goes whole. */
void fgw_count_whole(struct fgw_worker *worker, enum fgv_whole why);

#endif
