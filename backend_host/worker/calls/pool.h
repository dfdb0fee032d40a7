/* Memory pools of the client, and what they hold against its quota. */
#ifndef BACKEND_HOST_WORKER_POOL_H
#define BACKEND_HOST_WORKER_POOL_H

#include "calls/state.h"
#include "client/kind.h"

/* The client destroyed it; it goes with its last allocation. */
void fgw_pool_release(struct fgw_worker *worker, const struct fgw_handle *handle);
/* Of pool_saved.c. */
const char *fgw_pool_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver);
const char *fgw_pool_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved);
/* By the client's number, 0: the device's own. CUDA_ERROR_INVALID_VALUE: there is none. */
CUresult fgw_pool_find(struct fgw_worker *worker, uint64_t number, struct fgw_memory_pool **pool);
/* Frees one that was destroyed, if nothing of it is used any more. */
void fgw_pool_end_if_unused(struct fgw_worker *worker, struct fgw_memory_pool *pool);
/* Memory of the pool is no longer the client's. `stream`: others may have it when the work is over that is in this
 * stream now; NULL: at once. */
void fgw_pool_free(struct fgw_worker *worker, const struct fgw_range *range, struct fgw_stream *stream);
/* Where there is no span: whether memory of a pool lies in a piece that was made in this context, and goes with it; and
 * that context has gone. */
bool fgw_pool_is_piece_of(const struct fgw_range *range, const struct fgw_context *context);
void fgw_pools_lose(struct fgw_worker *worker, const struct fgw_context *context);
/* Of a shareable pool's memory: the whole piece that it lies in, which goes back as one. */
struct fgw_range fgw_pool_piece_of(const struct fgw_range *range);
/* Whether the address is one of a pool, used or not: no driver may be asked to free it. */
bool fgw_pools_have(const struct fgw_worker *worker, uint64_t address);
/* Attributes by CUDA's numbers. CUDA_ERROR_INVALID_VALUE: there is none, or it cannot be set to that. */
CUresult fgw_pool_set(struct fgw_memory_pool *pool, uint32_t attribute, uint64_t value);
CUresult fgw_pool_get(const struct fgw_memory_pool *pool, uint32_t attribute, uint64_t *value);
/* Makes all pools give back what they keep, as far as the device is done with it. */
void fgw_pools_trim(struct fgw_worker *worker);
/* Makes them give back what they keep beyond their thresholds, when the client's work has ended. */
void fgw_pools_rest(struct fgw_worker *worker);
/* Lets go of streams whose work is over. */
void fgw_pools_settle(struct fgw_worker *worker);
/* The client has ended. */
void fgw_pools_drop(struct fgw_worker *worker);

#endif
