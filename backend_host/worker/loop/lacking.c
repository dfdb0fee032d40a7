/* See lacking.h. */
#include "loop/lacking.h"

#include <stdlib.h>
#include <string.h>

#include "calls/lack.h"
#include "calls/memory.h"
#include "calls/swap.h"
#include "client/current.h"
#include "client/state.h"
#include "page/bell.h"
#include "page/room.h"
#include "turn/turn.h"

#define MOST    64u
#define LOOK_NS UINT64_C(1000000)
/* So long others are given to leave. */
#define MOST_NS UINT64_C(10000000000)
/* So long it waits for the word that each has room beside it. Requests that the driver refuses count for a moment, and
 * the daemon may have looked in that. */
#define SPARE_NS UINT64_C(500000000)
/* The driver says that it has room: what another process has just given back is there by then, or what is said is not
 * what it can give. */
#define SETTLES_NS UINT64_C(100000000)

struct fgw_lacking_request {
    struct fgw_lacking_request *next;
    uint64_t bytes;
    uint64_t until_ns; /* 0: its turn has not come */
    uint32_t record_bytes;
    uint16_t response;
    _Alignas(8) uint8_t record[]; /* header, fixed struct, payload */
};

static bool append(struct fgw_lacking *lacking, const struct fgw_service *service, const struct fgw_request *request,
                   uint16_t response, uint64_t bytes)
{
    const uint32_t head_bytes = (uint32_t)sizeof(*request->header) + service->request_bytes;
    const uint32_t record_bytes = head_bytes + request->payload_bytes;
    struct fgw_lacking_request *made = malloc(sizeof(*made) + record_bytes);
    if (!made) {
        return false;
    }
    *made = (struct fgw_lacking_request){.bytes = bytes, .record_bytes = record_bytes, .response = response};
    memcpy(made->record, request->header, sizeof(*request->header));
    memcpy(made->record + sizeof(*request->header), request->fixed, service->request_bytes);
    memcpy(made->record + head_bytes, request->payload, request->payload_bytes);
    *(lacking->last ? &lacking->last->next : &lacking->first) = made;
    lacking->last = made;
    lacking->nr++;
    return true;
}

void fgw_lacking_begin(struct fgw_worker *worker)
{
    const struct fgw_lacking *lacking = &worker->loop->lacking;
    const bool is_again = lacking->tries != FGW_TRIES_FIRST;
    fgw_lack_begin(worker, is_again ? lacking->tries == FGW_TRIES_AGAIN : lacking->nr < MOST);
}

bool fgw_lacking_keeps(struct fgw_worker *worker, const struct fgw_service *service, const struct fgw_request *request,
                       uint16_t response, CUresult result)
{
    const uint64_t bytes = fgw_lack_end(worker);
    return bytes != 0 && result == CUDA_ERROR_OUT_OF_MEMORY &&
           (worker->loop->lacking.tries != FGW_TRIES_FIRST ||
            append(&worker->loop->lacking, service, request, response, bytes));
}

/* The first one leaves, and others may have the room. */
static void drop_first(struct fgw_worker *worker)
{
    struct fgw_lacking *lacking = &worker->loop->lacking;
    struct fgw_lacking_request *first = lacking->first;
    fgw_room_unfix(&worker->grantee, lacking->kept_bytes);
    fgw_turn_set_awaited(worker, false);
    lacking->kept_bytes = 0;
    lacking->first = first->next;
    lacking->last = lacking->first ? lacking->last : NULL;
    lacking->nr--;
    free(first);
}

static bool has_room(struct fgw_worker *worker, uint64_t bytes)
{
    struct fgw_context *context = fgw_context_any(worker);
    if (!context) {
        return true;
    }
    fgw_context_make_current(worker, context);
    return fgw_memory_unused() >= bytes;
}

/* Its turn has come: from now on others are to leave it so much, where each has room beside it. */
static bool has_kept(struct fgw_worker *worker, struct fgw_lacking_request *first, uint64_t now_ns)
{
    struct fgw_lacking *lacking = &worker->loop->lacking;
    first->until_ns = first->until_ns == 0 ? now_ns + SPARE_NS : first->until_ns;
    if (lacking->kept_bytes == 0 && fgw_room_is_spare(&worker->grantee, first->bytes)) {
        lacking->kept_bytes = first->bytes;
        fgw_room_fix(&worker->grantee, first->bytes);
        first->until_ns = now_ns + MOST_NS;
    }
    return lacking->kept_bytes != 0;
}

bool fgw_lacking_is_due(struct fgw_worker *worker, uint64_t now_ns, struct fgw_lacking_record *record)
{
    struct fgw_lacking *lacking = &worker->loop->lacking;
    struct fgw_lacking_request *first = lacking->first;
    if (!first || now_ns - lacking->looked_ns < LOOK_NS) {
        return false;
    }
    lacking->looked_ns = now_ns;
    fgw_swap_wake(worker);
    const bool is_kept = has_kept(worker, first, now_ns);
    const bool is_last = now_ns >= first->until_ns;
    if (!is_last && !(is_kept && has_room(worker, first->bytes))) {
        return false;
    }
    lacking->tries = is_last ? FGW_TRIES_LAST : FGW_TRIES_AGAIN;
    *record = (struct fgw_lacking_record){
        .bytes = first->record, .nr_bytes = first->record_bytes, .response = first->response, .is_last = is_last};
    return true;
}

void fgw_lacking_tried(struct fgw_worker *worker, uint64_t now_ns, enum fgw_again again)
{
    struct fgw_lacking *lacking = &worker->loop->lacking;
    lacking->tries = FGW_TRIES_FIRST;
    fgw_turn_set_awaited(worker, again == FGW_AGAIN_MISSES);
    if (again == FGW_AGAIN_ANSWERED) {
        drop_first(worker);
    } else if (again == FGW_AGAIN_LACKS && lacking->first->until_ns > now_ns + SETTLES_NS) {
        lacking->first->until_ns = now_ns + SETTLES_NS;
    }
}

void fgw_lacking_drop(struct fgw_worker *worker)
{
    while (worker->loop->lacking.first) {
        drop_first(worker);
    }
}
