/*
 * A memory pool, saved and made again: its size and its attributes. Its memory is not the pool: one from which the
 * client has any cannot be saved.
 */
#include "calls/pool.h"
#include "calls/state.h"
#include "client/service.h"

/* Those before the first that only tells. */
static const uint32_t attribute_ids[] = {
    CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD};
#define NR_ATTRIBUTES (sizeof(attribute_ids) / sizeof(attribute_ids[0]))

struct saved_pool {
    uint64_t max_bytes;
    uint64_t is_shareable;
    uint64_t attributes[NR_ATTRIBUTES];
};

const char *fgw_pool_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver)
{
    const struct fgw_memory_pool *pool = handle->native;
    struct saved_pool saved = {.max_bytes = pool->max_bytes, .is_shareable = pool->is_shareable};
    (void)worker;
    if (pool->nr_live != 0) {
        return "there is memory from it";
    }
    for (uint32_t i = 0; i < NR_ATTRIBUTES; i++) {
        fgw_pool_get(pool, attribute_ids[i], &saved.attributes[i]);
    }
    fgw_saver_put(saver, &saved, sizeof(saved));
    return NULL;
}

const char *fgw_pool_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved)
{
    struct saved_pool was;
    if (!fgw_saved_take(saved, &was, sizeof(was))) {
        return FGW_SAVED_CUT_SHORT;
    }
    const struct fgv_request_cuMemPoolCreate create = {
        .handle = head->number, .max_bytes = was.max_bytes, .is_shareable = was.is_shareable != 0};
    const char *why =
        fgw_saved_serve(worker, saved, &(struct fgw_saved_call){.call = FGV_CALL_cuMemPoolCreate, .fixed = &create});
    for (uint32_t i = 0; i < NR_ATTRIBUTES && !why; i++) {
        const struct fgv_request_cuMemPoolSetAttribute set = {
            .pool = head->number, .value = was.attributes[i], .attribute = attribute_ids[i]};
        why = fgw_saved_serve(worker, saved,
                              &(struct fgw_saved_call){.call = FGV_CALL_cuMemPoolSetAttribute, .fixed = &set});
    }
    return why;
}
