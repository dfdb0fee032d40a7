/* Images on their way to the worker: see image.c. */
#ifndef FRONTEND_GUEST_IMAGE_H
#define FRONTEND_GUEST_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_api/types.h"
#include "cuda_api/wire.h"

/* What the program wants of the just-in-time compiler. */
struct fgv_jit_options {
    unsigned nr;
    const CUjit_option *options;
    void **values;
};

/* Sends bytes to the worker, which keeps them under a number until a call takes them. */
CUresult fgv_blob_send(const void *bytes, uint64_t nr_bytes, uint64_t *blob);
/* Sends the image to the worker and has it loaded under a new handle. */
CUresult fgv_image_load(enum fgv_handle_kind kind, const void *image, const struct fgv_jit_options *options,
                        uint64_t *handle);
/* A file's bytes and a terminating zero, which makes text of PTX; the caller frees. NULL: not readable. */
uint8_t *fgv_file_read(const char *path, size_t *nr_bytes);
CUresult fgv_image_load_file(enum fgv_handle_kind kind, const char *path, const struct fgv_jit_options *options,
                             uint64_t *handle);

#endif
