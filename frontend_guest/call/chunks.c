/* Chunks of the arena: see chunks.h. */
#include "call/chunks.h"

#include <string.h>
#include <time.h>

#include "base/bulk.h"
#include "call/device.h"

#define CHUNK_NAP_NS 50000

/* One bit for each chunk that was left behind. */
static _Atomic uint64_t left_behind[FGV_MAX_CHUNKS / 64];

/* All devices of a host are of one kind. Where the processor itself reads the arena, plain stores leave it what it
 * needs in its cache (docs/lab/copies.md). */
void fgv_chunk_stage(uint8_t *chunk, const uint8_t *from, uint64_t bytes)
{
    if (fgv_device_facts(0)->attributes[CU_DEVICE_ATTRIBUTE_INTEGRATED] == 1) {
        memcpy(chunk, from, bytes);
    } else {
        fgv_bulk_copy(chunk, from, bytes);
    }
}

bool fgv_chunk_take_over(uint32_t *chunk)
{
    for (uint32_t i = 0; i < fgv_guest.nr_chunks; i++) {
        uint64_t bit = UINT64_C(1) << (i % 64);
        if ((atomic_load_explicit(&left_behind[i / 64], memory_order_acquire) & bit) == 0 ||
            atomic_load_explicit(&fgv_guest.chunks[i].state, memory_order_acquire) != FGV_SLOT_DONE) {
            continue;
        }
        if ((atomic_fetch_and_explicit(&left_behind[i / 64], ~bit, memory_order_acq_rel) & bit) == 0) {
            continue; /* another thread was faster */
        }
        *chunk = i;
        return true;
    }
    return false;
}

bool fgv_chunk_try(uint32_t *chunk)
{
    int32_t taken = fgv_free_set_take(&fgv_guest.free_chunks, 0);
    if (taken < 0) {
        return fgv_chunk_take_over(chunk);
    }
    *chunk = (uint32_t)taken;
    return true;
}

CUresult fgv_chunk_take(uint32_t *chunk)
{
    const struct timespec nap = {.tv_nsec = CHUNK_NAP_NS};
    CUresult result = fgv_client_await();
    while (result == CUDA_SUCCESS && !fgv_chunk_try(chunk)) {
        if (!fgv_client_keep_waiting(NULL, 0)) {
            return fgv_client_lost();
        }
        nanosleep(&nap, NULL);
    }
    return result;
}

void fgv_chunk_give(uint32_t chunk)
{
    fgv_free_set_give(&fgv_guest.free_chunks, chunk);
}

void fgv_chunk_arm(uint32_t chunk)
{
    /* relaxed: the commit of the request publishes it */
    atomic_store_explicit(&fgv_guest.chunks[chunk].state, FGV_SLOT_WAITING, memory_order_relaxed);
}

CUresult fgv_chunk_wait(uint32_t chunk)
{
    struct fgv_chunk *state = &fgv_guest.chunks[chunk];
    const struct fgv_spin spin = {fgv_guest.spin_ns, &fgv_guest.chunk_waits[chunk], &fgv_guest.oversleep};
    if (!fgv_slot_wait(&state->state, &fgv_guest.region, &spin, fgv_client_keep_waiting, NULL)) {
        return fgv_client_lost();
    }
    return (CUresult)state->result;
}

void fgv_chunk_leave_behind(uint32_t chunk)
{
    atomic_fetch_or_explicit(&left_behind[chunk / 64], UINT64_C(1) << (chunk % 64), memory_order_release);
}
