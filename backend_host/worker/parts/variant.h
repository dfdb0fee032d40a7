/* Variants of kernels that run a part of a grid: see variant.c. */
#ifndef BACKEND_HOST_VARIANT_H
#define BACKEND_HOST_VARIANT_H

#include "client/kernel.h"
#include "parts/state.h"

/* cffi: begin */
void fgv_worker_set_slicing(struct fgv_worker *worker, const struct fgv_slicing_settings *settings,
                            const struct fgv_variant_maker *maker);
/* For `make`: where a variable of the original lies in global memory, 0: the driver knows none. */
uint64_t fgv_variant_address(const char *name);
/* cffi: end */

void fgv_image_keep(struct fgv_worker *worker, uint32_t owner_kind, uint64_t owner, const void *image, uint64_t bytes);
/* Of a module or a library, and of a kernel or function. */
void fgv_image_release(struct fgv_worker *worker, const struct fgv_handle *handle);
void fgv_kernel_release(struct fgv_worker *worker, const struct fgv_handle *handle);
/* The variant of a kernel in the current context, made if need be; NULL: `why` the kernel runs whole. For making one
 * nothing may be on the device. */
struct fgv_variant *fgv_variant_of(struct fgv_worker *worker, struct fgv_handle *handle, enum fgv_whole *why);
void fgv_variant_drop(struct fgv_worker *worker, struct fgv_variant *variant);
/* The context is about to be destroyed. */
void fgv_variants_drop_context(struct fgv_worker *worker, const struct fgv_context *context);
/* A large launch goes whole. */
void fgv_count_whole(struct fgv_worker *worker, enum fgv_whole why);

#endif
