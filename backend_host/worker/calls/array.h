/* Arrays of a client: their size against the quota, and their box for copies. */
#ifndef BACKEND_HOST_WORKER_ARRAY_H
#define BACKEND_HOST_WORKER_ARRAY_H

#include "client/state.h"
#include "cuda_api/array_format.h"

/* What hangs on the number of an array, and of a mipmapped one. Freed with the number. */
struct fgw_array {
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct fgv_array_box box; /* of an array */
    uint64_t quota_bytes;     /* 0 for a level, which its mipmapped array pays */
    uint32_t nr_levels;       /* of a mipmapped array */
    bool is_level;
};

/* Gives back what was paid for it. */
void fgw_array_release(struct fgw_worker *worker, const struct fgw_handle *handle);

#endif
