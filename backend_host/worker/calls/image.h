/* Module images on their way from the guest: see image.c. */
#ifndef BACKEND_HOST_IMAGE_H
#define BACKEND_HOST_IMAGE_H

#include "calls/state.h"
#include "cuda_api/fatbin.h"

void fgw_blobs_free(struct fgw_worker *worker);
/* The blob that has all its bytes, or NULL. */
struct fgw_blob *fgw_blob_complete(struct fgw_worker *worker, uint64_t number);
void fgw_blob_drop(struct fgw_worker *worker, uint64_t number);
/* CUDA_SUCCESS when the blob is an image that ends where it says. */
CUresult fgw_blob_measure(const struct fgw_blob *blob, enum fgv_image_kind *kind);

#endif
