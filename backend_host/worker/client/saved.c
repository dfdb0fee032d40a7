#include "client/saved.h"

#include <stdlib.h>
#include <string.h>

#include "client/service.h"
#include "ivshmem/response.h"

#define FIRST_ROOM 4096u

/* No object has as much, so that sums of sizes do not go round. */
#define MAX_BYTES (UINT64_C(1) << 40)

static uint64_t padded(uint64_t bytes)
{
    return (bytes + FGW_SAVED_ALIGNMENT - 1) / FGW_SAVED_ALIGNMENT * FGW_SAVED_ALIGNMENT;
}

void fgw_saver_put(struct fgw_saver *saver, const void *from, uint64_t bytes)
{
    const uint64_t end = saver->nr + padded(bytes);
    uint64_t room = saver->room != 0 ? saver->room : FIRST_ROOM;
    while (room < end) {
        room *= 2;
    }
    if (room != saver->room) {
        uint8_t *grown = realloc(saver->bytes, room);
        if (!grown) {
            saver->is_out_of_memory = true;
            return;
        }
        saver->bytes = grown;
        saver->room = room;
    }
    memset(saver->bytes + saver->nr, 0, end - saver->nr);
    if (bytes != 0) {
        memcpy(saver->bytes + saver->nr, from, bytes);
    }
    saver->nr = end;
}

const uint8_t *fgw_saved_view(struct fgw_saved *saved, uint64_t bytes)
{
    if (bytes > MAX_BYTES || padded(bytes) > saved->left) {
        return NULL;
    }
    const uint8_t *found = saved->bytes;
    saved->bytes += padded(bytes);
    saved->left -= padded(bytes);
    return found;
}

bool fgw_saved_take(struct fgw_saved *saved, void *to, uint64_t bytes)
{
    const uint8_t *found = fgw_saved_view(saved, bytes);
    if (found) {
        memcpy(to, found, bytes);
    }
    return found != NULL;
}

const char *fgw_saved_serve(struct fgw_worker *worker, struct fgw_saved *saved, const struct fgw_saved_call *call)
{
    const struct fgw_service *service = fgw_service_find(call->call);
    const struct fgv_wire_header header = {.call = call->call};
    const struct fgw_request request = {
        .header = &header, .fixed = call->fixed, .payload = call->payload, .payload_bytes = call->payload_bytes};
    _Alignas(8) uint8_t reply[FGV_RESPONSE_PAYLOAD_BYTES] = {0};
    saved->result = service->serve(worker, &request, call->reply ? call->reply : reply);
    return saved->result == CUDA_SUCCESS ? NULL : "the device library does not make it, or there is no room for it";
}
