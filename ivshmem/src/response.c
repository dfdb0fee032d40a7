/*
 * Response slots, arena chunks, and the guest's free sets of them. response.h tells what they are.
 *
 * A slot is one word that both ends change by exchange, so there is no second word to disagree with, and no wake-up to
 * lose: the owner moves WAITING to PARKED and sleeps only while the word says PARKED; the host replaces whatever it
 * finds with DONE and, when that was PARKED, wakes. It may move PARKED back to WAITING and wake before that. A bell
 * does not compare words; its count is read before the word is parked instead, and the sleep ends when it has changed.
 *
 * Wrong when: the owner gave up (keep_waiting said no) and uses the slot again. The host may still complete it for the
 * old request.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "ivshmem/response.h"

#include <sched.h>
#include <string.h>

#include "ivshmem/bell.h"
#include "wait.h"

#define FGV_OVERSLEEP_NS   UINT64_C(50000) /* until it is known: a thread's timer slack, as Linux begins with */
#define FGV_YIELD_AFTER_NS UINT64_C(20000) /* from then on whoever is ready to run on this core goes first */

void fgv_free_set_init(struct fgv_free_set *set, uint32_t nr)
{
    set->nr = nr < FGV_MAX_RESPONSES ? nr : FGV_MAX_RESPONSES;
    for (uint32_t word = 0; word < FGV_MAX_RESPONSES / 64; word++) {
        uint32_t first = word * 64;
        uint32_t nr_here = set->nr > first ? set->nr - first : 0;
        uint64_t bits = nr_here >= 64 ? UINT64_MAX : (UINT64_C(1) << nr_here) - 1;
        atomic_store_explicit(&set->free[word], bits, memory_order_relaxed);
    }
}

/* Takes `wanted` from its word if it is free, else the lowest free one there; -1 when the word is used up. */
static int32_t take_from_word(_Atomic uint64_t *free_bits, uint32_t wanted)
{
    uint64_t bits = atomic_load_explicit(free_bits, memory_order_relaxed);
    while (bits != 0) {
        uint32_t bit = (bits >> wanted) & 1 ? wanted : (uint32_t)__builtin_ctzll(bits);
        /* Acquire: pairs with the release in fgv_free_set_give; what the last owner did with the slot is done. */
        if (atomic_compare_exchange_weak_explicit(free_bits, &bits, bits & ~(UINT64_C(1) << bit), memory_order_acquire,
                                                  memory_order_relaxed)) {
            return (int32_t)bit;
        }
    }
    return -1;
}

int32_t fgv_free_set_take(struct fgv_free_set *set, uint32_t hint)
{
    if (set->nr == 0) {
        return -1;
    }
    if (hint >= set->nr) {
        hint %= set->nr;
    }
    const uint32_t nr_words = (set->nr + 63) / 64;
    uint32_t word = hint / 64;
    uint32_t wanted = hint % 64;
    for (uint32_t i = 0; i < nr_words; i++) {
        int32_t bit = take_from_word(&set->free[word], wanted);
        if (bit >= 0) {
            return (int32_t)(word * 64) + bit;
        }
        word = word + 1 < nr_words ? word + 1 : 0;
        wanted = 0;
    }
    return -1;
}

void fgv_free_set_give(struct fgv_free_set *set, uint32_t index)
{
    if (index >= set->nr) {
        return;
    }
    /* Release: pairs with the acquire in take_from_word. */
    atomic_fetch_or_explicit(&set->free[index / 64], UINT64_C(1) << (index % 64), memory_order_release);
}

/* When a waiting owner spins, in ns from the start of its wait: at first, for as long as a sleep would last beyond its
 * time, and around the time when such waits end. All the time if it may spin for as long as they last: now and then a
 * sleep comes out longer than any margin, and the device stands still meanwhile. */
struct spins {
    uint64_t first_ns, from_ns, to_ns;
};

static struct spins plan(const struct fgv_spin *spin, bool is_roused)
{
    if (!spin->wait) {
        return (struct spins){.first_ns = spin->most_ns};
    }
    const uint64_t sleep_ns = fgv_habit_most_ns(spin->oversleep, FGV_OVERSLEEP_NS);
    /* Roused in the middle of what it waits for: the end is near, and how near is not known. */
    struct spins spins = {.first_ns = is_roused || sleep_ns > spin->most_ns ? spin->most_ns : sleep_ns};
    const uint64_t end_ns = fgv_habit_mean_ns(spin->wait);
    if (end_ns != 0) {
        uint64_t margin_ns = sleep_ns + fgv_habit_spread_ns(spin->wait);
        margin_ns = margin_ns < spin->most_ns / 2 ? margin_ns : spin->most_ns / 2;
        spins.to_ns = end_ns + margin_ns;
        spins.from_ns = spins.to_ns <= spin->most_ns || end_ns < margin_ns ? 0 : end_ns - margin_ns;
    }
    return spins;
}

/* One wait of an owner. */
struct wait {
    _Atomic uint32_t *state;
    const struct fgv_region *region;
    const struct fgv_spin *spin;
    struct spins spins;
    uint64_t begun_ns; /* or roused */
    bool is_parked;
    bool is_roused;
};

static const struct fgv_guest_bell *working_bell(const struct fgv_region *region)
{
    const struct fgv_guest_bell *bell = region->wake == FGV_WAKE_BELL ? region->guest_bell : NULL;
    return bell && fgv_guest_bell_works(bell) ? bell : NULL;
}

/* One sleep of a waiting owner that saw `seen` in the word. */
static void sleep_once(struct wait *wait, uint32_t seen, uint64_t timeout_ns)
{
    _Atomic uint32_t *state = wait->state;
    const struct fgv_guest_bell *bell = working_bell(wait->region);
    wait->is_parked = false;
    if (wait->region->wake != FGV_WAKE_FUTEX && !bell) {
        fgv_nap(timeout_ns);
        return;
    }
    /* Before the word is parked: an interrupt for it counts from here on. */
    const uint32_t nr_rung = bell ? fgv_guest_bell_rung(bell) : 0;
    if (seen == FGV_SLOT_WAITING) {
        /* Relaxed: says nothing but that somebody sleeps. The host's exchange either comes before, and this fails, or
         * sees PARKED. */
        if (!atomic_compare_exchange_strong_explicit(state, &seen, FGV_SLOT_PARKED, memory_order_relaxed,
                                                     memory_order_relaxed)) {
            return;
        }
        seen = FGV_SLOT_PARKED;
    }
    wait->is_parked = seen == FGV_SLOT_PARKED;
    if (!bell) {
        fgv_futex_wait(state, seen, timeout_ns);
    } else if (atomic_load_explicit(state, memory_order_relaxed) != FGV_SLOT_DONE) {
        fgv_guest_bell_wait(bell, nr_rung, timeout_ns);
    }
}

/* Sleeps until the next time to spin, and learns by how much that comes out longer. */
static uint64_t sleep_until_spin(struct wait *wait, uint32_t seen, uint64_t now_ns)
{
    const uint64_t waited_ns = now_ns - wait->begun_ns;
    const bool is_woken = wait->region->wake == FGV_WAKE_FUTEX || working_bell(wait->region);
    const uint64_t from_ns = wait->spins.from_ns;
    const uint64_t left_ns = waited_ns < from_ns ? from_ns - waited_ns : FGV_ASK_NS;
    const uint64_t most_ns = is_woken ? FGV_ASK_NS : fgv_nap_after(waited_ns);
    const uint64_t timeout_ns = left_ns < most_ns ? left_ns : most_ns;
    sleep_once(wait, seen, timeout_ns);
    const uint64_t slept_ns = fgv_now_ns() - now_ns;
    if (wait->spin->oversleep && slept_ns > timeout_ns) {
        fgv_habit_note(wait->spin->oversleep, slept_ns - timeout_ns);
    }
    return now_ns + slept_ns;
}

static void begin_wait(struct wait *wait, uint64_t now_ns)
{
    wait->spins = plan(wait->spin, wait->is_roused);
    wait->begun_ns = now_ns;
    wait->is_parked = false;
}

static bool spin_once(const _Atomic uint32_t *state, uint64_t waited_ns)
{
    for (uint32_t i = 0; i < FGV_PAUSES_PER_CLOCK; i++) {
        /* Acquire, here and below: pairs with the exchange in fgv_slot_complete; result and payload were written before
         * it. */
        if (atomic_load_explicit(state, memory_order_acquire) == FGV_SLOT_DONE) {
            return true;
        }
        fgv_cpu_pause();
    }
    if (waited_ns >= FGV_YIELD_AFTER_NS) {
        sched_yield();
    }
    return false;
}

bool fgv_slot_wait(_Atomic uint32_t *state, const struct fgv_region *region, const struct fgv_spin *spin,
                   bool (*keep_waiting)(void *, uint32_t), void *context)
{
    if (atomic_load_explicit(state, memory_order_acquire) == FGV_SLOT_DONE) {
        return true;
    }
    struct wait wait = {.state = state, .region = region, .spin = spin};
    uint64_t now_ns = fgv_now_ns();
    begin_wait(&wait, now_ns);
    struct fgv_patience patience = {.asked_ns = now_ns, .keep_waiting = keep_waiting, .context = context};
    for (;;) {
        const uint64_t waited_ns = now_ns - wait.begun_ns;
        const struct spins *spins = &wait.spins;
        const bool is_spinning =
            waited_ns < spins->first_ns || (waited_ns >= spins->from_ns && waited_ns < spins->to_ns);
        if (is_spinning && spin_once(state, waited_ns)) {
            break; /* the clock was read not long ago: who waits here is not kept for another look at it */
        }
        const uint32_t seen = atomic_load_explicit(state, memory_order_acquire);
        if (seen == FGV_SLOT_DONE) {
            now_ns = fgv_now_ns();
            break;
        }
        if (!fgv_patience_lasts(&patience, now_ns)) {
            return false;
        }
        if (wait.is_parked && seen == FGV_SLOT_WAITING) {
            wait.is_roused = true;
            begin_wait(&wait, now_ns);
        } else {
            now_ns = is_spinning ? fgv_now_ns() : sleep_until_spin(&wait, seen, now_ns);
        }
    }
    /* Nothing is learnt from a wait for a turn of the GPU: the device's switch is in it. */
    if (spin->wait && !wait.is_roused) {
        fgv_habit_note_wait(spin->wait, now_ns - wait.begun_ns);
    }
    return true;
}

static void wake(_Atomic uint32_t *state, const struct fgv_region *region)
{
    if (region->wake == FGV_WAKE_FUTEX) {
        fgv_futex_wake(state);
    } else if (region->host_bell) {
        fgv_host_bell_ring(region->host_bell);
    }
}

bool fgv_slot_complete(_Atomic uint32_t *state, const struct fgv_region *region)
{
    /* Release: pairs with the acquires in fgv_slot_wait. */
    uint32_t before = atomic_exchange_explicit(state, FGV_SLOT_DONE, memory_order_release);
    if (before != FGV_SLOT_PARKED || region->wake == FGV_WAKE_POLL) {
        return false;
    }
    wake(state, region);
    return true;
}

bool fgv_slot_rouse(_Atomic uint32_t *state, const struct fgv_region *region)
{
    uint32_t before = FGV_SLOT_PARKED;
    /* Relaxed: the word says nothing of other memory before it is DONE. */
    if (region->wake == FGV_WAKE_POLL ||
        !atomic_compare_exchange_strong_explicit(state, &before, FGV_SLOT_WAITING, memory_order_relaxed,
                                                 memory_order_relaxed)) {
        return false;
    }
    wake(state, region);
    return true;
}

static struct fgv_response *response_at(const struct fgv_region *region, const struct fgv_client_layout *layout,
                                        uint32_t index)
{
    return (struct fgv_response *)(region->base + layout->responses.offset) + index;
}

static struct fgv_chunk *chunk_at(const struct fgv_region *region, const struct fgv_client_layout *layout,
                                  uint32_t index)
{
    return (struct fgv_chunk *)(region->base + layout->chunks.offset) + index;
}

bool fgv_respond(const struct fgv_region *region, const struct fgv_client_layout *layout, uint32_t index,
                 uint32_t result, const void *payload, uint32_t payload_bytes)
{
    if (index >= layout->nr_responses || payload_bytes > FGV_RESPONSE_PAYLOAD_BYTES) {
        return false;
    }
    struct fgv_response *slot = response_at(region, layout, index);
    slot->result = result;
    slot->payload_bytes = payload_bytes;
    if (payload_bytes != 0) {
        memcpy(slot->payload, payload, payload_bytes);
    }
    fgv_slot_complete(&slot->state, region);
    return true;
}

bool fgv_chunk_complete(const struct fgv_region *region, const struct fgv_client_layout *layout, uint32_t index,
                        uint32_t result)
{
    if (index >= layout->nr_chunks) {
        return false;
    }
    struct fgv_chunk *chunk = chunk_at(region, layout, index);
    chunk->result = result;
    fgv_slot_complete(&chunk->state, region);
    return true;
}

void fgv_respond_soon(const struct fgv_region *region, const struct fgv_client_layout *layout, uint32_t index)
{
    if (index < layout->nr_responses) {
        fgv_slot_rouse(&response_at(region, layout, index)->state, region);
    }
}

void fgv_chunk_complete_soon(const struct fgv_region *region, const struct fgv_client_layout *layout, uint32_t index)
{
    if (index < layout->nr_chunks) {
        fgv_slot_rouse(&chunk_at(region, layout, index)->state, region);
    }
}
