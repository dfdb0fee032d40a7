/* What the files of the handshake share among themselves; embedders include cuda_api/handshake.h only. */
#ifndef CUDA_API_HANDSHAKE_INTERNAL_H
#define CUDA_API_HANDSHAKE_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_api/handshake.h"

/* NULL until the embedder has called fgv_handshake_set_ops. */
FGV_HIDDEN const struct fgv_handshake_ops *fgv_handshake_ops_get(void);
/* The current context, and CUDA_ERROR_INVALID_CONTEXT with NULL when the thread has none. */
FGV_HIDDEN CUresult fgv_handshake_current(CUcontext *context);

/* Slots of CONTEXT_LOCAL_STORAGE (storage.c). context NULL or -1: the current one. */
typedef void (*fgv_storage_destructor)(CUcontext context, void *key, void *value);
FGV_HIDDEN CUresult fgv_storage_put(CUcontext context, void *key, void *value, fgv_storage_destructor destructor);
FGV_HIDDEN CUresult fgv_storage_delete(CUcontext context, void *key);
FGV_HIDDEN CUresult fgv_storage_get(void **value, CUcontext context, void *key);

/* What the integrity check hashes (integrity.c), apart from the devices, which are asked of the ops. */
struct fgv_integrity_subject {
    uint32_t driver_version;
    uint32_t check_version;
    uint32_t process_id;
    uint32_t thread_id;
    uint64_t cudart_table;
    uint64_t integrity_table;
    uint64_t check_function;
    uint64_t unix_seconds;
};

FGV_HIDDEN CUresult fgv_integrity_hash(const struct fgv_handshake_ops *ops, const struct fgv_integrity_subject *subject,
                                       uint64_t result[2]);

#endif
