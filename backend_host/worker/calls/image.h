/* Module images on their way from the guest: see image.c. */
#ifndef BACKEND_HOST_IMAGE_H
#define BACKEND_HOST_IMAGE_H

#include "calls/state.h"
#include "cuda_api/fatbin.h"

void fgv_blobs_free(struct fgv_worker *worker);
/* The blob that has all its bytes, or NULL. */
struct fgv_blob *fgv_blob_whole(struct fgv_worker *worker, uint64_t number);
void fgv_blob_drop(struct fgv_worker *worker, uint64_t number);
/* CUDA_SUCCESS when the blob is an image that ends where it says. */
CUresult fgv_blob_measure(const struct fgv_blob *blob, enum fgv_image_kind *kind);

#endif
