/*
 * The window behind the region, from the first allocation on that finds the region's heap full. Its memory is shared by
 * all programs of the virtual machine, as the region's is: what another one asked for is used before more is asked for.
 *
 * Nothing of it is used before the worker has mapped it, too; the host tells each worker of a piece before the device
 * has it. A daemon that was started anew knows nothing of the pieces that the one before gave: its workers have none of
 * them, and the program does without.
 */
#include "memory/window.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "call/call.h"
#include "ivshmem/heap.h"
#include "region/client.h"
#include "region/find.h"

#define RIGHT_NAP_NS  1000000
#define NR_RIGHT_NAPS 120000u /* two minutes: two requests that nobody answers */

static pthread_mutex_t growing = PTHREAD_MUTEX_INITIALIZER;

static uint64_t known_bytes(void)
{
    return atomic_load_explicit(&fgv_guest.region.window.mapped_bytes, memory_order_relaxed);
}

/* How much of the window the worker has mapped, when the device has this much. */
static uint64_t worker_bytes(uint64_t device_bytes)
{
    struct fgv_call call;
    struct fgv_reply_window_map reply = {0};
    struct fgv_request_window_map *request = fgv_call_begin_anywhere(&call, FGV_CALL_window_map, sizeof(*request), 0);
    if (!request) {
        return 0;
    }
    request->needed_bytes = device_bytes;
    return fgv_call_wait(&call, &reply, sizeof(reply)) == CUDA_SUCCESS ? reply.mapped_bytes : 0;
}

/* Takes into use what the device has mapped meanwhile. False: nothing more can be used. */
static bool take_into_use(void)
{
    const struct fgv_growth *growth = &fgv_guest.growth;
    struct fgv_window *window = &fgv_guest.region.window;
    uint64_t device_bytes = fgv_growth_mapped(growth);
    uint64_t usable_bytes = device_bytes > known_bytes() ? worker_bytes(device_bytes) : 0;
    if (usable_bytes > device_bytes) {
        usable_bytes = device_bytes;
    }
    if (usable_bytes <= known_bytes() || usable_bytes % FGV_PAGE_BYTES != 0 ||
        !fgv_growth_map(growth, (uint8_t *)window->owners, known_bytes(), usable_bytes)) {
        return false;
    }
    /* Release: pairs with the acquire in fgv_region_area. */
    atomic_store_explicit(&window->mapped_bytes, usable_bytes, memory_order_release);
    return true;
}

/* Waits for the right to ask, which one program of the virtual machine has at a time. */
static bool right_take(void)
{
    const struct timespec nap = {.tv_nsec = RIGHT_NAP_NS};
    for (unsigned i = 0; i < NR_RIGHT_NAPS && fgv_client_keep_waiting(NULL, 0); i++) {
        if (fgv_grower_take(&fgv_guest.region, fgv_guest.index)) {
            return true;
        }
        nanosleep(&nap, NULL);
    }
    return false;
}

static bool is_more_mapped(void)
{
    return fgv_growth_mapped(&fgv_guest.growth) > known_bytes();
}

/* Asks for memory behind what is known, of which `end_bytes` at the end are free, until a run of `bytes` fits. */
static bool ask(uint64_t bytes, uint64_t end_bytes)
{
    const uint64_t before = known_bytes();
    const uint64_t front_bytes = before == 0 ? fgv_window_front_bytes(fgv_guest.region.window.bytes) : 0;
    return fgv_growth_ask(&fgv_guest.growth, before + front_bytes + bytes - end_bytes) && is_more_mapped();
}

/* Sees to it that there is room for a run of `bytes`, or more to be taken into use. False: it is refused. */
static bool make_room(uint64_t bytes)
{
    if (!right_take()) {
        return false;
    }
    const uint64_t end_bytes = fgv_window_end_bytes(&fgv_guest.region);
    /* Another one may have been faster, or have given back what it had. */
    bool is_there = is_more_mapped() || end_bytes >= bytes || ask(bytes, end_bytes);
    fgv_grower_give(&fgv_guest.region, fgv_guest.index);
    return is_there;
}

uint64_t fgv_window_allocate(uint64_t bytes)
{
    const uint64_t window_bytes = fgv_guest.region.window.bytes;
    if (bytes > window_bytes) {
        return FGV_HEAP_NONE;
    }
    uint64_t offset;
    pthread_mutex_lock(&growing);
    for (;;) {
        offset = fgv_heap_allocate(&fgv_guest.region, fgv_guest.index, bytes);
        if (offset != FGV_HEAP_NONE) {
            break;
        }
        if (is_more_mapped() ? !take_into_use() : !make_room(bytes)) {
            break;
        }
    }
    pthread_mutex_unlock(&growing);
    return offset;
}

int fgv_window_reopen(uint64_t *offset)
{
    const uint64_t region_bytes = fgv_guest.region.region_bytes;
    if (*offset < region_bytes) {
        return fgv_find_reopen();
    }
    *offset -= region_bytes;
    return dup(fgv_guest.growth.window);
}
