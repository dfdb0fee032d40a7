/*
 * How all stand at this moment: who has the grant, who wants it, who would be next. Nothing here moves it (grant.c).
 */
#include "page/outlook.h"

#include <stddef.h>

#include "page/allowance.h"
#include "page/bell.h"
#include "page/room.h"
#include "page/sets.h"
#include "page/space.h"

bool fgw_vgpu_is_among(struct fgw_control *control, uint32_t number, const struct fgw_worker_set *set)
{
    return fgw_set_has_common(&control->decided->vgpus[number - 1].members, set);
}

bool fgw_vgpu_has_users(struct fgw_control *control, uint32_t number)
{
    return fgw_is_vgpu(number) && fgw_vgpu_is_among(control, number, &control->grant->users);
}

bool fgw_vgpu_waits(struct fgw_control *control, uint32_t number)
{
    return fgw_is_vgpu(number) && fgw_vgpu_is_among(control, number, &control->grant->waiting);
}

bool fgw_control_anybody_waits(struct fgw_control *control)
{
    return fgw_set_has_common(&control->grant->waiting, &control->grant->waiting);
}

uint64_t fgw_vgpu_held_ns(const struct fgw_control *control, uint32_t index)
{
    const uint64_t nr_unused = atomic_load_explicit(&control->grant->seats[index].nr_unused, memory_order_relaxed);
    return atomic_load_explicit(&control->accounts[index]->held_ns, memory_order_relaxed) +
           nr_unused * FGW_GRANT_UNUSED_NS;
}

struct fgw_standing fgw_vgpu_standing(const struct fgw_control *control, uint32_t index)
{
    const struct fgw_decided_vgpu *vgpu = &control->decided->vgpus[index];
    const uint64_t charged_ns = atomic_load_explicit(&control->accounts[index]->used_ns, memory_order_relaxed) +
                                fgw_vgpu_held_ns(control, index);
    double at_none, per_ns;
    uint32_t nr = atomic_load_explicit(&vgpu->nr_standings, memory_order_acquire), before;
    do {
        before = nr;
        const struct fgw_decided_standing *told = &vgpu->standings[before % 2];
        /* Acquire: pairs with the stores of fgw_control_set_standing. Whoever reads a part of a later one sees that
         * `before` does not count any more. */
        at_none = atomic_load_explicit(&told->at_none, memory_order_acquire);
        per_ns = atomic_load_explicit(&told->per_ns, memory_order_acquire);
        nr = atomic_load_explicit(&vgpu->nr_standings, memory_order_acquire);
    } while (nr != before);
    return (struct fgw_standing){.now = at_none + per_ns * (double)charged_ns, .per_ns = per_ns};
}

uint64_t fgw_grant_elapsed_ns(struct fgw_control *control, uint64_t word, uint64_t now_ns)
{
    const uint64_t now = fgw_stamp(FGW_GRANT_SEQUENCE(word), now_ns);
    uint64_t start = atomic_load_explicit(&control->grant->slice_start, memory_order_relaxed);
    if (fgw_stamp_tag(start) != fgw_stamp_tag(now)) {
        atomic_compare_exchange_strong(&control->grant->slice_start, &start, now);
        return 0;
    }
    uint64_t passed_ns = (now_ns - start) & FGW_SLICE_TIME_MASK;
    return passed_ns >> (FGW_SLICE_TIME_BITS - 1) ? 0 : passed_ns; /* a start that another thread took after our now */
}

/* Tells how a vGPU that waits stands now. */
struct place {
    bool is_urgent;
    struct fgw_standing standing;
    uint64_t since_ns;
};

static struct place place_of(struct fgw_control *control, uint32_t number)
{
    return (struct place){
        .is_urgent = fgw_space_is_urgent(control, number),
        .standing = fgw_vgpu_standing(control, number - 1),
        .since_ns = atomic_load_explicit(&control->accounts[number - 1]->waiting_since_ns, memory_order_relaxed),
    };
}

static bool is_before(const struct place *a, const struct place *b)
{
    if (a->is_urgent != b->is_urgent) {
        return a->is_urgent;
    }
    return a->standing.now < b->standing.now || (a->standing.now == b->standing.now && a->since_ns < b->since_ns);
}

uint32_t fgw_grant_choose(struct fgw_control *control, uint32_t other_than)
{
    uint32_t best = FGW_NOBODY;
    struct place best_place = {.is_urgent = false};
    for (uint32_t number = 1; number <= FGW_MAX_VGPUS && fgw_control_anybody_waits(control); number++) {
        if (number != other_than && fgw_vgpu_waits(control, number)) {
            struct place place = place_of(control, number);
            if (best == FGW_NOBODY || is_before(&place, &best_place)) {
                best = number;
                best_place = place;
            }
        }
    }
    return best;
}

bool fgw_grant_others_wait(const struct fgw_grantee *grantee)
{
    for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
        uint64_t waiting = atomic_load_explicit(&grantee->control->grant->waiting.words[i], memory_order_relaxed);
        if (waiting && waiting & ~atomic_load_explicit(&grantee->decided->members.words[i], memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

bool fgw_grant_is_anothers(const struct fgw_grantee *grantee)
{
    const uint32_t holder =
        fgw_grant_holder(atomic_load_explicit(&grantee->control->grant->word, memory_order_relaxed));
    return holder != FGW_NOBODY && holder != grantee->number;
}

bool fgw_grant_runs_alone(const struct fgw_grantee *grantee)
{
    return fgw_set_nr_common(&grantee->decided->members, &grantee->control->grant->running) <= 1;
}

static bool has_long_turns(const struct fgw_control *control, uint32_t number)
{
    return fgw_is_vgpu(number) &&
           atomic_load_explicit(&control->accounts[number - 1]->has_long_turns, memory_order_relaxed) != 0;
}

static struct fgw_next next_of(const struct fgw_grantee *grantee)
{
    struct fgw_control *control = grantee->control;
    const uint32_t number = fgw_grant_choose(control, grantee->number);
    if (number == FGW_NOBODY) {
        return (struct fgw_next){.is_known = true};
    }
    const struct place place = place_of(control, number), own = place_of(control, grantee->number);
    return (struct fgw_next){
        .is_known = true,
        .is_there = true,
        .stays = has_long_turns(control, number),
        .is_urgent = place.is_urgent,
        .is_own_urgent = own.is_urgent,
        .is_companion = fgw_space_are_companions(control, number, grantee->number),
        .since_ns = place.since_ns,
        .standing = place.standing,
        .own_standing = own.standing.now,
    };
}

static bool is_behind_none(const struct fgw_next *next)
{
    if (!next->is_there) {
        return true;
    }
    return next->is_urgent == next->is_own_urgent ? next->own_standing <= next->standing.now : next->is_own_urgent;
}

bool fgw_grant_is_first(const struct fgw_grantee *grantee)
{
    const struct fgw_next next = next_of(grantee);
    return is_behind_none(&next);
}

static bool stands_first(const struct fgw_grantee *grantee)
{
    struct fgw_control *control = grantee->control;
    const struct place own = place_of(control, grantee->number);
    for (uint32_t number = 1; number <= FGW_MAX_VGPUS && fgw_control_anybody_waits(control); number++) {
        if (number != grantee->number && fgw_vgpu_waits(control, number) &&
            place_of(control, number).standing.now < own.standing.now) {
            return false;
        }
    }
    return true;
}

/* Any worker of the vGPU may have renewed the slice, and others may have come to wait since the one before. */
bool fgw_grant_is_ahead(struct fgw_grantee *grantee)
{
    const uint64_t start = atomic_load_explicit(&grantee->control->grant->slice_start, memory_order_relaxed);
    if (start != grantee->ahead_start) {
        grantee->ahead_start = start;
        grantee->is_ahead = fgw_space_is_critical(grantee) && !stands_first(grantee);
    }
    return grantee->is_ahead;
}

/* What is left of the slice matters while others wait, what is left of the limit always. */
struct fgw_outlook fgw_outlook_take(const struct fgw_grantee *grantee, uint64_t now_ns)
{
    struct fgw_outlook outlook = {
        .grantee = grantee,
        .now_ns = now_ns,
        .slice_ns = fgw_grant_slice_ns(grantee),
        .sequence = fgw_grant_sequence(grantee),
        .is_preemptive = fgw_grant_is_preemptive(grantee),
        .has = fgw_grant_has(grantee),
        .others_wait = fgw_grant_others_wait(grantee),
        .allowed_ns = fgw_allowance_left_ns(grantee, now_ns),
    };
    outlook.is_timed = outlook.others_wait || outlook.allowed_ns != UINT64_MAX;
    if (outlook.has && outlook.others_wait) {
        fgw_outlook_look_at_slice(&outlook);
    } else if (outlook.has && outlook.is_timed) {
        outlook.left_ns = outlook.allowed_ns;
    }
    return outlook;
}

void fgw_outlook_look_at_slice(struct fgw_outlook *outlook)
{
    const uint64_t left_ns = fgw_grant_left_ns(outlook->grantee, outlook->now_ns);
    outlook->had_ns = outlook->slice_ns > left_ns ? outlook->slice_ns - left_ns : 0;
    outlook->left_ns = left_ns < outlook->allowed_ns ? left_ns : outlook->allowed_ns;
}

static const struct fgw_next *next_in(struct fgw_outlook *outlook)
{
    if (!outlook->next.is_known) {
        outlook->next = next_of(outlook->grantee);
    }
    return &outlook->next;
}

bool fgw_outlook_is_first(struct fgw_outlook *outlook)
{
    return is_behind_none(next_in(outlook));
}

bool fgw_outlook_next_stays(struct fgw_outlook *outlook)
{
    return next_in(outlook)->stays;
}

bool fgw_outlook_has_newcomer(struct fgw_outlook *outlook, uint64_t late_ns, uint64_t owed_ns)
{
    const struct fgw_next *next = next_in(outlook);
    return next->is_there && next->since_ns > outlook->grantee->turn_since_ns + late_ns &&
           next->standing.now + next->standing.per_ns * (double)owed_ns < next->own_standing;
}

bool fgw_outlook_next_is_urgent(struct fgw_outlook *outlook)
{
    const struct fgw_next *next = next_in(outlook);
    return next->is_there && next->is_urgent && !next->is_own_urgent && !next->is_companion;
}

bool fgw_outlook_next_is_companion(struct fgw_outlook *outlook)
{
    const struct fgw_next *next = next_in(outlook);
    return next->is_there && next->is_companion;
}

bool fgw_grant_holder_stays(const struct fgw_grantee *grantee)
{
    const uint64_t word = atomic_load_explicit(&grantee->control->grant->word, memory_order_relaxed);
    return has_long_turns(grantee->control, fgw_grant_holder(word));
}

uint64_t fgw_grant_beside_ns(const struct fgw_grantee *grantee, uint64_t now_ns)
{
    struct fgw_control *control = grantee->control;
    uint64_t word = atomic_load_explicit(&control->grant->word, memory_order_relaxed);
    const uint32_t holder = fgw_grant_holder(word);
    const bool is_beside = fgw_is_vgpu(holder) && holder != grantee->number &&
                           fgw_vgpu_is_among(control, holder, &control->grant->running);
    return is_beside ? fgw_grant_elapsed_ns(control, word, now_ns) : 0;
}

uint64_t fgw_grant_left_ns(const struct fgw_grantee *grantee, uint64_t now_ns)
{
    uint64_t word = atomic_load_explicit(&grantee->control->grant->word, memory_order_relaxed);
    if ((word & (FGW_GRANT_CLOSED | 0xffffu)) != grantee->number) {
        return 0;
    }
    const uint64_t slice_ns = fgw_grant_slice_ns(grantee);
    uint64_t passed_ns = fgw_grant_elapsed_ns(grantee->control, word, now_ns);
    return passed_ns < slice_ns ? slice_ns - passed_ns : 0;
}

void fgw_control_grant_read(struct fgw_control *control, struct fgw_grant_reading *reading)
{
    uint64_t word = atomic_load(&control->grant->word);
    uint64_t now_ns = fgw_clock_ns();
    uint32_t holder = fgw_grant_holder(word);
    const bool is_vgpu = fgw_is_vgpu(holder);
    *reading = (struct fgw_grant_reading){
        .holder = is_vgpu ? holder : FGW_NOBODY,
        .is_closed = (word & FGW_GRANT_CLOSED) != 0,
        .nr_users =
            is_vgpu ? fgw_set_nr_common(&control->decided->vgpus[holder - 1].members, &control->grant->users) : 0,
        .sequence = FGW_GRANT_SEQUENCE(word),
        .since_ns = now_ns - fgw_grant_elapsed_ns(control, word, now_ns),
    };
}

uint64_t fgw_control_backlogged(struct fgw_control *control, uint64_t *since_ns)
{
    uint64_t mask = 0;
    for (uint32_t vgpu = 0; vgpu < FGW_MAX_VGPUS && fgw_control_anybody_waits(control); vgpu++) {
        if (fgw_vgpu_waits(control, vgpu + 1)) {
            mask |= UINT64_C(1) << vgpu;
            since_ns[vgpu] = atomic_load(&control->accounts[vgpu]->waiting_since_ns);
        }
    }
    return mask;
}

uint64_t fgw_control_displaced(struct fgw_control *control, uint64_t *since_ns)
{
    uint64_t mask = 0;
    if (atomic_load(&control->decided->allocatable_bytes) <= atomic_load(&control->decided->capacity_bytes)) {
        return 0;
    }
    for (uint32_t vgpu = 0; vgpu < FGW_MAX_VGPUS; vgpu++) {
        mask |= fgw_vgpu_is_displaced(control, vgpu, &since_ns[vgpu]) ? UINT64_C(1) << vgpu : 0;
    }
    return mask;
}

uint64_t fgw_control_active(struct fgw_control *control)
{
    uint64_t since_ns[FGW_MAX_VGPUS];
    const uint32_t holder = fgw_grant_holder(atomic_load(&control->grant->word));
    const uint64_t backlogged = fgw_control_backlogged(control, since_ns) | fgw_control_displaced(control, since_ns);
    return fgw_is_vgpu(holder) ? backlogged | UINT64_C(1) << (holder - 1) : backlogged;
}
