/*
 * Response slots and arena chunks: things that one thread of the guest owns, hands to the worker with a request, and
 * gets back.
 *
 * Both are a state word that is also where the owner waits. Which slots and chunks are free only the guest knows, in
 * private memory; the worker completes what a request named and nothing else. Answers may come in any order, so a
 * thread that waits holds up no other.
 */
#ifndef IVSHMEM_RESPONSE_H
#define IVSHMEM_RESPONSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ivshmem/habit.h"
#include "ivshmem/region.h"

#define FGV_RESPONSE_BYTES         512u
#define FGV_RESPONSE_PAYLOAD_BYTES (FGV_RESPONSE_BYTES - 16u)
#define FGV_MAX_RESPONSES          1024u
#define FGV_MAX_CHUNKS             1024u
#define FGV_CHUNK_MIN_BYTES        4096u
#define FGV_CHUNK_MAX_BYTES        (16u * 1024u * 1024u)
#define FGV_NO_CHUNK               0xffffffffu

enum fgv_slot_state { FGV_SLOT_IDLE = 0, FGV_SLOT_WAITING = 1, FGV_SLOT_PARKED = 2, FGV_SLOT_DONE = 3 };

struct fgv_response {
    _Atomic uint32_t state;
    uint32_t result; /* CUresult */
    uint32_t payload_bytes;
    uint32_t reserved;
    uint8_t payload[FGV_RESPONSE_PAYLOAD_BYTES];
};
_Static_assert(sizeof(struct fgv_response) == FGV_RESPONSE_BYTES, "response");

/* The chunk's memory is arena + index * chunk_bytes. */
struct fgv_chunk {
    _Atomic uint32_t state;
    uint32_t result; /* CUresult */
};
_Static_assert(sizeof(struct fgv_chunk) == 8, "chunk");

/* Guest: which of `nr` slots (or chunks) are taken. Lock-free bitmap in private memory. */
struct fgv_free_set {
    _Atomic uint64_t free[FGV_MAX_RESPONSES / 64];
    uint32_t nr;
};
void fgv_free_set_init(struct fgv_free_set *set, uint32_t nr);
/* Index of one that was free, looking at `hint` first; -1 when none is. */
int32_t fgv_free_set_take(struct fgv_free_set *set, uint32_t hint);
void fgv_free_set_give(struct fgv_free_set *set, uint32_t index);

/*
 * How a waiting owner spins. `most_ns`: at one go, at most. `wait`: how long waits like this one last, `oversleep`: by
 * how much sleeps here come out longer than they should; both are learnt, and both NULL where `most_ns` is all. Then
 * spinning has two occasions: at first, for as long as a sleep would cost, and around the time when the wait should
 * end.
 */
struct fgv_spin {
    uint64_t most_ns;
    struct fgv_habit *wait, *oversleep;
};

/*
 * Guest: waits until the state word is DONE, spinning as `spin` says, otherwise parked (futex or bell as the region has
 * it, naps of 20 us to 1 ms under POLL). Once roused it waits as if it had only begun to. `keep_waiting(context,
 * round)` is asked now and then (at least every 50 ms); false gives up and returns false. The caller set the word to
 * WAITING before the request was committed.
 */
bool fgv_slot_wait(_Atomic uint32_t *state, const struct fgv_region *region, const struct fgv_spin *spin,
                   bool (*keep_waiting)(void *, uint32_t), void *context);

/* Host: marks DONE (release) and wakes a parked owner. Returns true when it had to wake. The result and payload were
 * written before. */
bool fgv_slot_complete(_Atomic uint32_t *state, const struct fgv_region *region);

/* Host: wakes a parked owner (PARKED becomes WAITING) because what it waits for has begun: it is to spin when the
 * answer comes. Returns true when it had to wake. */
bool fgv_slot_rouse(_Atomic uint32_t *state, const struct fgv_region *region);

/* Host: writes result and payload into slot `index` of a checked layout and completes it. A bad index is ignored and
 * counted by the caller: returns false. */
bool fgv_respond(const struct fgv_region *region, const struct fgv_client_layout *layout, uint32_t index,
                 uint32_t result, const void *payload, uint32_t payload_bytes);
bool fgv_chunk_complete(const struct fgv_region *region, const struct fgv_client_layout *layout, uint32_t index,
                        uint32_t result);

/* Host: rouses who waits for slot `index`, or for chunk `index`. A bad index is nobody's. */
void fgv_respond_soon(const struct fgv_region *region, const struct fgv_client_layout *layout, uint32_t index);
void fgv_chunk_complete_soon(const struct fgv_region *region, const struct fgv_client_layout *layout, uint32_t index);

#endif
