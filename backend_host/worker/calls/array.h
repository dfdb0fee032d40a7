/* Arrays of a client: their size against the quota, and their box for copies. */
#ifndef BACKEND_HOST_WORKER_ARRAY_H
#define BACKEND_HOST_WORKER_ARRAY_H

#include "client/kind.h"
#include "client/state.h"
#include "cuda_api/array_format.h"

/* What hangs on the number of an array, and of a mipmapped one. Freed with the number. */
struct fgw_array {
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct fgv_array_box box; /* of an array */
    uint64_t quota_bytes;     /* 0 for a level, which its mipmapped array pays */
    uint32_t nr_levels;       /* of a mipmapped array */
    uint32_t level;           /* of a level */
    bool is_level;
};

/* Gives back what was paid for it. */
void fgw_array_release(struct fgw_worker *worker, const struct fgw_handle *handle);
/* Of an array, a level and a mipmapped array. What its texels are is not the array. */
const char *fgw_array_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver);
const char *fgw_array_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved);

#endif
