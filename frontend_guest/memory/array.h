/* Arrays and mipmapped arrays: what the program said when it made them. */
#ifndef FRONTEND_GUEST_ARRAY_H
#define FRONTEND_GUEST_ARRAY_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"

struct fgv_context;

struct fgv_array {
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct fgv_context *context;
    bool is_level; /* lives and dies with its mipmapped array */
};

/* The array behind a handle, or NULL. */
const struct fgv_array *fgv_array_find(CUarray array);
bool fgv_mipmap_exists(CUmipmappedArray mipmap);
struct fgv_context *fgv_mipmap_context(uint64_t mipmap);
void fgv_array_forget_context(struct fgv_context *context);

#endif
