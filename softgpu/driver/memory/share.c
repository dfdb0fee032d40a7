/* See share.h. */
#include "memory/share.h"

#include <unistd.h>

CUresult sgp_share_new(struct sgp_share *share, enum sgp_shared_kind kind, struct sgp_device *device, uint64_t bytes)
{
    *share = (struct sgp_share){.device = device};
    share->file = sgp_shared_new(&share->head, kind, device->state, bytes);
    return share->file >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sgp_share_export(struct sgp_share *share, uint64_t bytes)
{
    struct sgp_state *state = share->device->state;

    if (share->is_exported) {
        return CUDA_SUCCESS;
    }
    if (!sgp_state_share(state, &share->head.holder)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!sgp_shared_write(share->file, &share->head)) {
        sgp_state_part(state, &share->head.holder);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sgp_state_move(state, &share->head.holder, (int64_t)bytes);
    share->is_exported = true;
    return CUDA_SUCCESS;
}

CUresult sgp_share_import(struct sgp_share *share, int file, const struct sgp_shared_head *head)
{
    *share =
        (struct sgp_share){.file = file, .device = sgp_device_of(head->device), .head = *head, .is_exported = true};
    if (!share->device) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!sgp_state_join(share->device->state, &share->head.holder, head->bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (share->head.holder.id != head->holder.id) { /* all who had it have gone: the next finds this process's count */
        sgp_shared_write(file, &share->head);
    }
    return CUDA_SUCCESS;
}

void sgp_share_end(struct sgp_share *share)
{
    if (share->is_exported) {
        sgp_state_part(share->device->state, &share->head.holder);
    }
    close(share->file);
}
