/*
 * What a vGPU used: GPU time, and device memory against its quota.
 *
 * Memory is counted in each worker's slot alone and the vGPU's is the sum, so that a death leaves nothing to correct.
 * GPU time of workers of one vGPU may overlap; a common time, up to which the vGPU has been charged, keeps the overlap
 * from being charged twice. It passes over no time in which one of them has work on the device: who charges last is
 * held up by a call of the driver, and one kernel of another would have the vGPU pay for nothing before it. Time in
 * which several vGPUs have work on the device is charged to each in part: space.h.
 */
#include "page/account.h"

#include "ivshmem/region.h"
#include "page/allowance.h"
#include "page/bell.h"
#include "page/outlook.h"
#include "page/sets.h"
#include "page/space.h"

/* A holder believes others that they kept it off the device for so long in a turn, and no longer: 1 ms beside their
 * work, and half of the 1 ms that withdrawing it may take (withdraw.c), with a look of 0.5 ms. */
#define FGW_SPARED_MOST_NS UINT64_C(2000000)

/* Tells how much of the time another vGPU's work kept this one off the device, as far as that is believed: work is
 * taken off a device that preempts alone. */
static uint64_t spared_ns(struct fgw_grantee *grantee, uint64_t from_ns, uint64_t to_ns)
{
    const uint64_t until_ns = atomic_load_explicit(&grantee->seat->spared_until_ns, memory_order_relaxed);
    if (until_ns <= from_ns || !grantee->control->decided->is_preemptive) {
        return 0;
    }
    const uint64_t room_ns = FGW_SPARED_MOST_NS - grantee->turn_spared_ns;
    uint64_t ns = (until_ns < to_ns ? until_ns : to_ns) - from_ns;
    ns = ns < room_ns ? ns : room_ns;
    grantee->turn_spared_ns += ns;
    return ns;
}

/* A worker whose work on the device is not charged for the longest. */
struct uncharged {
    struct fgw_worker_slot *slot;
    uint64_t since_ns;
};

/* Tells which of the vGPU's workers that is, if it is so since before `from_ns`; else there is none. */
static struct uncharged uncharged_before(const struct fgw_grantee *grantee, uint64_t from_ns)
{
    struct uncharged found = {.slot = NULL, .since_ns = from_ns};
    for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
        uint64_t running = atomic_load_explicit(&grantee->control->grant->running.words[i], memory_order_relaxed) &
                           atomic_load_explicit(&grantee->decided->members.words[i], memory_order_relaxed);
        for (; running != 0; running &= running - 1) {
            const uint32_t index = i * 64 + (uint32_t)__builtin_ctzll(running);
            struct fgw_worker_slot *slot = &grantee->control->own[grantee->number - 1]->workers[index];
            const uint64_t since_ns = atomic_load_explicit(&slot->uncharged_since_ns, memory_order_relaxed);
            if (since_ns != 0 && since_ns < found.since_ns) {
                found = (struct uncharged){.slot = slot, .since_ns = since_ns};
            }
        }
    }
    return found;
}

/* What this critical one uses is out of turn: beside another's, before that of another, or while the split leaves best
 * effort of its space no place to want one for. */
static bool is_before_others(struct fgw_grantee *grantee)
{
    return !grantee->is_user || fgw_grant_is_ahead(grantee) || fgw_space_keeps_out(grantee);
}

/* Charges this part of the time that is not charged yet. */
static void charge(struct fgw_grantee *grantee, uint64_t from_ns, uint64_t to_ns, struct fgw_fraction part)
{
    uint64_t until_ns = atomic_load_explicit(&grantee->account->charged_until_ns, memory_order_relaxed);
    struct uncharged first = {.slot = NULL, .since_ns = from_ns};
    uint64_t start_ns;
    if (to_ns > from_ns) {
        atomic_fetch_add_explicit(&grantee->slot->busy_ns, to_ns - from_ns, memory_order_relaxed);
    }
    if (from_ns > until_ns) {
        first = uncharged_before(grantee, from_ns);
    }
    do {
        start_ns = first.since_ns > until_ns ? first.since_ns : until_ns;
        if (start_ns >= to_ns) {
            return;
        }
    } while (!atomic_compare_exchange_weak(&grantee->account->charged_until_ns, &until_ns, to_ns));
    const bool is_out_of_turn = fgw_space_is_critical(grantee) && is_before_others(grantee); /* as it stands now */
    const uint64_t used_ns = (to_ns - start_ns - spared_ns(grantee, start_ns, to_ns)) * part.of / part.in;
    uint64_t first_ns = start_ns < from_ns ? (from_ns - start_ns) * part.of / part.in : 0;
    first_ns = first_ns < used_ns ? first_ns : used_ns;
    atomic_fetch_add_explicit(&grantee->account->used_ns, used_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&grantee->slot->gpu_ns, used_ns - first_ns, memory_order_relaxed);
    if (first_ns != 0) {
        atomic_fetch_add_explicit(&first.slot->gpu_ns, first_ns, memory_order_relaxed);
    }
    fgw_allowance_charge(grantee, used_ns, to_ns);
    if (is_out_of_turn) {
        atomic_fetch_add_explicit(&grantee->account->out_of_turn_ns, used_ns, memory_order_relaxed);
        atomic_fetch_add_explicit(&grantee->slot->out_of_turn_ns, used_ns, memory_order_relaxed);
    }
}

void fgw_grant_charge(struct fgw_grantee *grantee, uint64_t from_ns, uint64_t to_ns)
{
    charge(grantee, from_ns, to_ns, fgw_space_part(grantee));
}

void fgw_grant_show_uncharged(struct fgw_grantee *grantee, uint64_t since_ns)
{
    atomic_store_explicit(&grantee->slot->uncharged_since_ns, since_ns, memory_order_relaxed);
}

void fgw_grant_charge_half(struct fgw_grantee *grantee, uint64_t from_ns, uint64_t to_ns)
{
    charge(grantee, from_ns, to_ns, (struct fgw_fraction){.of = 1, .in = 2});
}

void fgw_grant_spare_holder(struct fgw_grantee *grantee, uint64_t until_ns)
{
    struct fgw_grant *grant = grantee->control->grant;
    const uint64_t word = atomic_load_explicit(&grant->word, memory_order_relaxed);
    const uint32_t number = fgw_grant_holder(word);
    if (fgw_is_vgpu(number) && number != grantee->number) {
        _Atomic uint64_t *spared_until_ns = &grant->seats[number - 1].spared_until_ns;
        uint64_t before_ns = atomic_load_explicit(spared_until_ns, memory_order_relaxed);
        while (before_ns < until_ns && !atomic_compare_exchange_weak(spared_until_ns, &before_ns, until_ns)) {
        }
    }
}

void fgw_grant_charge_hold(struct fgw_grantee *grantee, uint64_t held_ns)
{
    atomic_fetch_add_explicit(&grantee->account->held_ns, held_ns, memory_order_relaxed);
    grantee->turn_held_ns += held_ns;
    if (fgw_allowance_is_limited(grantee)) {
        fgw_allowance_charge(grantee, held_ns, fgw_clock_ns());
    }
}

uint64_t fgw_vgpu_memory_bytes(const struct fgw_control *control, uint32_t index, uint64_t *quota_bytes)
{
    const struct fgw_decided_vgpu *vgpu = &control->decided->vgpus[index];
    const struct fgw_own *own = control->own[index];
    uint64_t used_bytes = 0;
    for (uint32_t slot = 0; slot < FGW_MAX_WORKERS; slot++) {
        if (fgw_set_has(&vgpu->members, slot)) {
            uint64_t bytes = atomic_load(&own->workers[slot].memory_bytes);
            used_bytes = bytes > UINT64_MAX - used_bytes ? UINT64_MAX : used_bytes + bytes;
        }
    }
    *quota_bytes = atomic_load(&vgpu->quota_bytes);
    return used_bytes;
}

uint64_t fgw_quota_used(const struct fgw_grantee *grantee, uint64_t *quota_bytes)
{
    return fgw_vgpu_memory_bytes(grantee->control, grantee->number - 1, quota_bytes);
}

static _Atomic uint64_t *counter(struct fgw_worker_slot *slot, uint32_t limited)
{
    switch (limited) {
    case FGW_LIMITED_CONTEXTS:
        return &slot->nr_contexts;
    case FGW_LIMITED_STREAMS:
        return &slot->nr_streams;
    case FGW_LIMITED_MODULES:
        return &slot->nr_modules;
    default:
        return &slot->images_bytes;
    }
}

/* As memory: counted first and looked at afterwards. What one worker may have at most is so little that no sum is too
 * large. */
bool fgw_limit_take(struct fgw_grantee *grantee, uint32_t limited, uint64_t more)
{
    const uint64_t most = atomic_load(&grantee->decided->most[limited]);
    uint64_t nr = 0;
    atomic_fetch_add(counter(grantee->slot, limited), more);
    for (uint32_t slot = 0; most != 0 && slot < FGW_MAX_WORKERS; slot++) {
        if (fgw_set_has(&grantee->decided->members, slot)) {
            nr += atomic_load(counter(&grantee->control->own[grantee->number - 1]->workers[slot], limited));
        }
    }
    if (nr > most) {
        fgw_limit_give(grantee, limited, more);
        return false;
    }
    return true;
}

void fgw_limit_give(struct fgw_grantee *grantee, uint32_t limited, uint64_t more)
{
    atomic_fetch_sub(counter(grantee->slot, limited), more);
}

static void count_memory(struct fgw_grantee *grantee, uint64_t more_bytes)
{
    uint64_t bytes = atomic_fetch_add(&grantee->slot->memory_bytes, more_bytes) + more_bytes;
    if (grantee->client) {
        atomic_store_explicit(&grantee->client->memory_bytes, bytes, memory_order_relaxed);
    }
}

bool fgw_quota_take(struct fgw_grantee *grantee, uint64_t bytes)
{
    uint64_t quota_bytes;
    if (bytes > UINT64_MAX / 2) {
        return false;
    }
    /* Counted first and looked at afterwards: of two workers that ask for the last bytes at once, both may be refused
     * but never both served. */
    count_memory(grantee, bytes);
    uint64_t used_bytes = fgw_quota_used(grantee, &quota_bytes);
    if (quota_bytes != 0 && used_bytes > quota_bytes) {
        count_memory(grantee, 0 - bytes);
        return false;
    }
    return true;
}

void fgw_quota_give(struct fgw_grantee *grantee, uint64_t bytes)
{
    count_memory(grantee, 0 - bytes);
}
