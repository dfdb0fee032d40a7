/*
 * A stream, saved and made again: its flags, its priority, its attributes. Its work is not the stream: one that has
 * work, or is captured, cannot be saved. Calls of streams are generated.
 */
#include "calls/stream.h"

#include <string.h>

#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"

/* Those that the table of calls lets a guest set. */
static const uint32_t attribute_ids[] = {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
                                         CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, CU_LAUNCH_ATTRIBUTE_PRIORITY,
                                         CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN};
#define NR_ATTRIBUTES (sizeof(attribute_ids) / sizeof(attribute_ids[0]))

struct saved_stream {
    uint32_t flags;
    int32_t priority;
    uint32_t has_attributes; /* bits of those that the driver tells */
    uint32_t reserved;
    uint64_t attributes[NR_ATTRIBUTES][sizeof(CUstreamAttrValue) / sizeof(uint64_t)];
};

static bool ask(struct fgw_worker *worker, CUstream native, uint32_t i, uint64_t *value)
{
    CUstreamAttrValue told;
    memset(&told, 0, sizeof(told));
    if (!worker->driver.cuStreamGetAttribute ||
        worker->driver.cuStreamGetAttribute(native, (CUstreamAttrID)attribute_ids[i], &told) != CUDA_SUCCESS) {
        return false;
    }
    memcpy(value, &told, sizeof(told));
    return true;
}

const char *fgw_stream_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver)
{
    const struct fgv_driver *driver = &worker->driver;
    const struct fgw_stream *stream = handle->object;
    struct saved_stream saved = {0};
    unsigned int flags = 0;
    int priority = 0;
    if (fgw_stream_is_captured(worker, stream)) {
        return "it is captured";
    }
    if (!saver->is_at_work && (stream->last_seq > stream->done_seq || stream->is_busy)) {
        return "its work has not ended";
    }
    if (!driver->cuStreamGetFlags || !driver->cuStreamGetPriority ||
        driver->cuStreamGetFlags(handle->native, &flags) != CUDA_SUCCESS ||
        driver->cuStreamGetPriority(handle->native, &priority) != CUDA_SUCCESS) {
        return "the device library does not tell its flags";
    }
    saved.flags = flags;
    saved.priority = priority;
    for (uint32_t i = 0; i < NR_ATTRIBUTES; i++) {
        if (ask(worker, handle->native, i, saved.attributes[i])) {
            saved.has_attributes |= 1u << i;
        }
    }
    fgw_saver_put(saver, &saved, sizeof(saved));
    return NULL;
}

const char *fgw_stream_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved)
{
    struct saved_stream was;
    if (!fgw_saved_take(saved, &was, sizeof(was))) {
        return FGW_SAVED_CUT_SHORT;
    }
    const struct fgv_request_cuStreamCreateWithPriority create = {
        .phStream = head->number, .flags = was.flags, .priority = was.priority};
    const char *why = fgw_saved_serve(
        worker, saved, &(struct fgw_saved_call){.call = FGV_CALL_cuStreamCreateWithPriority, .fixed = &create});
    void *native = NULL;
    if (!why) {
        fgw_worker_find(worker, FGV_HANDLE_STREAM, head->number, &native);
    }
    for (uint32_t i = 0; i < NR_ATTRIBUTES && !why; i++) {
        struct fgv_request_cuStreamSetAttribute set = {.hStream = head->number, .attr = attribute_ids[i]};
        memcpy(set.value, was.attributes[i], sizeof(was.attributes[i]));
        uint64_t value[sizeof(CUstreamAttrValue) / sizeof(uint64_t)];
        if ((was.has_attributes >> i & 1) != 0 &&
            (!ask(worker, native, i, value) || memcmp(value, set.value, sizeof(value)) != 0)) {
            why = fgw_saved_serve(worker, saved,
                                  &(struct fgw_saved_call){.call = FGV_CALL_cuStreamSetAttribute, .fixed = &set});
        }
    }
    return why;
}
