/* See room.h. Counting comes first and looking afterwards, both sequentially consistent: of two that count at once one
 * at least sees the other. */
#include "page/room.h"

#include "page/bell.h"
#include "page/sets.h"
#include "page/shares.h"
#include "page/sleep.h"

static uint64_t at_most(uint64_t bytes, uint64_t most_bytes)
{
    return bytes < most_bytes ? bytes : most_bytes;
}

static uint64_t beyond(uint64_t bytes, uint64_t used_bytes)
{
    return bytes - at_most(used_bytes, bytes);
}

/* Everybody's, as they say: no more of any than one may have, and once what several have. */
static uint64_t all_allocated_bytes(const struct fgw_control *control)
{
    const uint64_t most_bytes = atomic_load(&control->decided->capacity_bytes);
    uint64_t all_bytes = 0;
    for (uint32_t index = 0; index < FGW_MAX_VGPUS; index++) {
        const struct fgw_decided_vgpu *vgpu = &control->decided->vgpus[index];
        if (!atomic_load(&vgpu->is_used)) {
            continue;
        }
        uint64_t bytes = 0;
        for (uint32_t slot = 0; slot < FGW_MAX_WORKERS; slot++) {
            if (fgw_set_has(&vgpu->members, slot)) {
                bytes += at_most(atomic_load(&control->accounts[index]->allocated_bytes[slot]), most_bytes);
            }
        }
        all_bytes += beyond(bytes, fgw_shares_beyond_once(control, index, most_bytes));
    }
    return all_bytes;
}

bool fgw_vgpu_is_suspended(const struct fgw_control *control, uint32_t index, uint32_t slot)
{
    const uint32_t suspension = atomic_load(&control->decided->vgpus[index].suspension);
    return suspension % 2 != 0 && atomic_load(&control->own[index]->workers[slot].returned) != suspension;
}

bool fgw_room_is_crowded(const struct fgw_grantee *grantee)
{
    return all_allocated_bytes(grantee->control) > atomic_load(&grantee->control->decided->capacity_bytes);
}

/* What one that has nothing may allocate: the rest of what may be on the device is others' for good. */
static uint64_t most_of_one_bytes(const struct fgw_grantee *grantee)
{
    const struct fgw_decided *decided = grantee->control->decided;
    return beyond(atomic_load(&decided->capacity_bytes),
                  atomic_load(&decided->workers[grantee->slot_index].withheld_bytes));
}

static void untake(struct fgw_grantee *grantee, uint64_t bytes)
{
    atomic_fetch_sub(&grantee->account->allocated_bytes[grantee->slot_index], bytes);
}

/* Counts what is allocated, wherever it lies: false, and nothing counted, when it is more than there may be. `share`:
 * the name of what others may have, too, or 0. */
static bool take(struct fgw_grantee *grantee, uint64_t bytes, uint64_t share)
{
    const struct fgw_decided *decided = grantee->control->decided;
    const uint64_t capacity_bytes = atomic_load(&decided->capacity_bytes);
    if (bytes > UINT64_MAX / 2) {
        return false;
    }
    const uint64_t own_bytes = atomic_fetch_add(&grantee->account->allocated_bytes[grantee->slot_index], bytes) + bytes;
    fgw_share_join(grantee, share, bytes);
    if (capacity_bytes != 0 && (own_bytes > capacity_bytes ||
                                all_allocated_bytes(grantee->control) > atomic_load(&decided->allocatable_bytes))) {
        fgw_share_leave(grantee, share);
        untake(grantee, bytes);
        return false;
    }
    return true;
}

bool fgw_room_allocate(struct fgw_grantee *grantee, uint64_t bytes, uint64_t share)
{
    if (!take(grantee, bytes, share)) {
        return false;
    }
    const uint64_t linear_bytes = atomic_fetch_add(&grantee->slot->linear_bytes, bytes) + bytes;
    if (atomic_load(&grantee->control->decided->capacity_bytes) != 0 && linear_bytes > most_of_one_bytes(grantee)) {
        fgw_share_leave(grantee, share);
        fgw_room_deallocate(grantee, bytes);
        return false;
    }
    return true;
}

bool fgw_room_free(const struct fgw_grantee *grantee, uint64_t *free_bytes, uint64_t *most_bytes)
{
    const struct fgw_decided *decided = grantee->control->decided;
    const uint64_t own_bytes = atomic_load(&grantee->account->allocated_bytes[grantee->slot_index]);
    const uint64_t linear_bytes = atomic_load(&grantee->slot->linear_bytes);
    const uint64_t all_bytes = all_allocated_bytes(grantee->control);
    const uint64_t allocatable_bytes = atomic_load(&decided->allocatable_bytes);
    const uint64_t capacity_bytes = atomic_load(&decided->capacity_bytes);
    *free_bytes = at_most(beyond(capacity_bytes, own_bytes), beyond(allocatable_bytes, all_bytes));
    *free_bytes = at_most(*free_bytes, beyond(most_of_one_bytes(grantee), linear_bytes));
    *most_bytes = capacity_bytes;
    return capacity_bytes != 0;
}

void fgw_room_deallocate(struct fgw_grantee *grantee, uint64_t bytes)
{
    atomic_fetch_sub(&grantee->slot->linear_bytes, bytes);
    untake(grantee, bytes);
}

bool fgw_room_may_place(struct fgw_grantee *grantee, uint64_t bytes)
{
    const bool may = take(grantee, bytes, 0);
    if (may) {
        untake(grantee, bytes);
    }
    return may;
}

bool fgw_room_place(struct fgw_grantee *grantee, uint64_t bytes)
{
    const bool may = take(grantee, bytes, 0);
    fgw_room_fix(grantee, may ? bytes : 0);
    return may;
}

void fgw_room_count_placed(struct fgw_grantee *grantee, uint64_t bytes)
{
    untake(grantee, 0 - bytes);
    fgw_room_fix(grantee, bytes);
}

void fgw_room_unplace(struct fgw_grantee *grantee, uint64_t bytes)
{
    fgw_room_count_placed(grantee, 0 - bytes);
}

void fgw_room_stay(struct fgw_grantee *grantee, uint64_t bytes)
{
    atomic_fetch_sub(&grantee->slot->linear_bytes, bytes);
    fgw_room_leave(grantee, bytes);
    fgw_room_fix(grantee, bytes);
}

bool fgw_room_claim(struct fgw_grantee *grantee, uint64_t bytes)
{
    const uint64_t resident_bytes = atomic_fetch_add(&grantee->slot->resident_bytes, bytes) + bytes;
    if (resident_bytes > fgw_room_target_bytes(grantee)) {
        fgw_room_leave(grantee, bytes);
        return false;
    }
    return true;
}

void fgw_room_hold(struct fgw_grantee *grantee, uint64_t bytes)
{
    atomic_fetch_add(&grantee->slot->resident_bytes, bytes);
}

void fgw_room_leave(struct fgw_grantee *grantee, uint64_t bytes)
{
    atomic_fetch_sub(&grantee->slot->resident_bytes, bytes);
}

void fgw_room_fix(struct fgw_grantee *grantee, uint64_t bytes)
{
    if (bytes == 0) {
        return;
    }
    atomic_fetch_add(&grantee->slot->fixed_bytes, bytes);
    if (fgw_room_is_short(grantee)) {
        fgw_control_ring_bell(grantee->control); /* others may have that much less */
    }
}

void fgw_room_unfix(struct fgw_grantee *grantee, uint64_t bytes)
{
    fgw_room_fix(grantee, 0 - bytes);
}

bool fgw_room_is_spare(const struct fgw_grantee *grantee, uint64_t bytes)
{
    return fgw_room_is_short(grantee) && bytes <= atomic_load(&grantee->control->decided->spare_bytes);
}

void fgw_room_refuse(struct fgw_grantee *grantee, uint64_t bytes)
{
    _Atomic uint64_t *refused_bytes = &grantee->slot->refused_bytes;
    if (atomic_load(refused_bytes) != bytes && atomic_exchange(refused_bytes, bytes) == 0) {
        fgw_control_ring_bell(grantee->control);
    }
}

void fgw_room_await(struct fgw_grantee *grantee, uint64_t since_ns)
{
    if (atomic_exchange(&grantee->slot->displaced_since_ns, since_ns) == 0 || since_ns == 0) {
        fgw_control_ring_bell(grantee->control);
    }
}

bool fgw_vgpu_is_displaced(const struct fgw_control *control, uint32_t index, uint64_t *since_ns)
{
    const struct fgw_decided_vgpu *vgpu = &control->decided->vgpus[index];
    const struct fgw_own *own = control->own[index];
    *since_ns = 0;
    if (!own || !atomic_load(&vgpu->is_used)) {
        return false;
    }
    for (uint32_t slot = 0; slot < FGW_MAX_WORKERS; slot++) {
        if (fgw_set_has(&vgpu->members, slot)) {
            const uint64_t each_ns = atomic_load(&own->workers[slot].displaced_since_ns);
            *since_ns = each_ns != 0 && (*since_ns == 0 || each_ns < *since_ns) ? each_ns : *since_ns;
        }
    }
    return *since_ns != 0;
}

void fgw_control_set_capacity(struct fgw_control *control, uint64_t capacity_bytes, uint64_t allocatable_bytes)
{
    atomic_store(&control->decided->capacity_bytes, capacity_bytes);
    atomic_store(&control->decided->allocatable_bytes, allocatable_bytes);
}

void fgw_control_set_target(struct fgw_control *control, uint32_t slot, uint64_t target_bytes)
{
    atomic_store(&control->decided->workers[slot].target_bytes, target_bytes);
}

void fgw_control_set_withheld(struct fgw_control *control, uint32_t slot, uint64_t withheld_bytes)
{
    atomic_store(&control->decided->workers[slot].withheld_bytes, withheld_bytes);
}

void fgw_control_set_spare(struct fgw_control *control, uint64_t spare_bytes)
{
    atomic_store(&control->decided->spare_bytes, spare_bytes);
}

uint64_t fgw_control_counted_again(const struct fgw_control *control, uint32_t index)
{
    return fgw_shares_beyond_once(control, index, atomic_load(&control->decided->capacity_bytes));
}

void fgw_control_set_suspended(struct fgw_control *control, uint32_t index, bool is_suspended)
{
    _Atomic uint32_t *suspension = &control->decided->vgpus[index].suspension;
    const uint32_t now = atomic_load(suspension);
    if (is_suspended) {
        atomic_store(suspension, now + 1 + now % 2);
    } else {
        atomic_store(suspension, now + now % 2);
    }
}

static struct fgw_room_reading read_one(struct fgw_control *control, uint32_t slot, uint32_t vgpu)
{
    const uint64_t most_bytes = atomic_load(&control->decided->capacity_bytes);
    const struct fgw_worker_slot *own = &control->own[vgpu]->workers[slot];
    struct fgw_room_reading reading = {
        .slot = slot,
        .vgpu = vgpu,
        .is_suspended = fgw_vgpu_is_suspended(control, vgpu, slot),
        .keeps = atomic_load(&own->keeps),
        .allocated_bytes = at_most(atomic_load(&own->linear_bytes), most_bytes),
        .resident_bytes = at_most(atomic_load(&own->resident_bytes), most_bytes),
        .target_bytes = atomic_load(&control->decided->workers[slot].target_bytes),
        .refused_bytes = atomic_load(&own->refused_bytes),
        .displaced_since_ns = atomic_load(&own->displaced_since_ns),
        .other_bytes = fgw_is_asleep(control, slot) ? 0 : at_most(atomic_load(&own->fixed_bytes), most_bytes),
    };
    reading.wants = fgw_set_has(&control->grant->users, slot) || fgw_set_has(&control->grant->waiting, slot) ||
                    reading.displaced_since_ns != 0;
    return reading;
}

uint32_t fgw_control_rooms(struct fgw_control *control, struct fgw_room_reading *readings)
{
    uint32_t nr = 0;
    for (uint32_t slot = 0; slot < FGW_MAX_WORKERS; slot++) {
        uint32_t vgpu;
        if (fgw_slot_serves(control, slot, &vgpu)) {
            readings[nr++] = read_one(control, slot, vgpu);
        }
    }
    return nr;
}
