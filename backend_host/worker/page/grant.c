/*
 * The hand-over of the GPU between vGPUs. grant.h and layout.h say what and why; this is the how.
 *
 * All loads and stores of the grant word and of the sets are sequentially consistent: a user sets its bit and then
 * looks at the grant, a closer closes the grant and then looks at the bits, so at least one of them sees the other. The
 * sequence number makes a hand-over happen once, however many try.
 *
 * Wrong when: a worker is stopped (SIGSTOP) while it is a user. It keeps the GPU for its vGPU until the daemon evicts
 * it.
 */
#include "page/grant.h"

#include "ivshmem/region.h"
#include "page/allowance.h"
#include "page/apart.h"
#include "page/bell.h"
#include "page/hand_over.h"
#include "page/outlook.h"
#include "page/sets.h"
#include "page/space.h"

/* A turn that runs dry no more than an eighth of the slice before its end has used it: as what begins late is left for
 * the next one. When half a slice was enough, slow beginnings counted too and shares were less even
 * (docs/lab/withdrawal.md). */
#define FGW_EARLY_DIVISOR 8u
/* By bursts it has used it after a half: a turn is as long as nine in ten requests, and most of a program's are shorter
 * (docs/lab/bursts.md). */
#define FGW_REQUEST_DIVISOR 2u

/* Whoever tries in vain was overtaken by another, which has its own try behind it: so often that can be. Only a writer
 * that hands nothing on comes between more often, and whoever waits tries again after 2 ms. */
#define FGW_PASS_TRIES FGW_MAX_WORKERS

/* Does what goes with a hand-over that has just succeeded. */
static void announce(struct fgw_control *control, uint64_t word, uint64_t passed, uint32_t why)
{
    const uint32_t next = fgw_grant_holder(passed);
    fgw_grant_elapsed_ns(control, passed, fgw_clock_ns());
    fgw_hand_over_note(control, word, passed, why);
    if (!fgw_is_vgpu(next)) {
        return;
    }
    struct fgw_seat *seat = &control->grant->seats[next - 1];
    atomic_fetch_add(&seat->nr_grants, 1);
    fgw_bell_ring(&seat->bell);
    if (fgw_vgpu_is_among(control, next, &control->grant->interactive)) {
        fgw_bell_ring(&control->grant->boost_bell);
    }
    fgw_control_ring_bell(control);
}

/* Makes `next` the holder, or nobody. False: the word is not that any more. */
static bool hand_on(struct fgw_control *control, uint64_t word, uint32_t next, uint32_t why)
{
    uint64_t passed = FGW_GRANT_WORD(FGW_GRANT_SEQUENCE(word) + 1, next);
    if (!atomic_compare_exchange_strong(&control->grant->word, &word, passed)) {
        return false;
    }
    announce(control, word, passed, why);
    /* Who gave up waiting since it was chosen looked at the word before it was its own. */
    if (next != FGW_NOBODY && !fgw_vgpu_has_users(control, next) && !fgw_vgpu_waits(control, next)) {
        atomic_compare_exchange_strong(&control->grant->word, &passed, passed | FGW_GRANT_CLOSED_FOR(FGW_WHY_IDLE, 0));
    }
    return true;
}

bool fgw_grant_pass_on(struct fgw_control *control)
{
    bool is_given = false;
    for (uint32_t tries = 0; tries < FGW_PASS_TRIES; tries++) {
        uint64_t word = atomic_load(&control->grant->word);
        uint32_t holder = fgw_grant_holder(word);
        if (holder != FGW_NOBODY && (!(word & FGW_GRANT_CLOSED) || fgw_vgpu_has_users(control, holder))) {
            return is_given;
        }
        uint32_t next = fgw_grant_choose(control, FGW_NOBODY);
        if (holder == FGW_NOBODY && next == FGW_NOBODY) {
            return is_given;
        }
        is_given |= hand_on(control, word, next, holder == FGW_NOBODY ? FGW_WHY_FREE : FGW_GRANT_WHY(word)) &&
                    next != FGW_NOBODY;
    }
    return is_given;
}

bool fgw_grant_pass(struct fgw_control *control)
{
    return !fgw_is_apart(control) && fgw_grant_pass_on(control);
}

/* Gives the bits of a grant that this worker closes. */
static uint64_t closed_for(const struct fgw_grantee *grantee, enum fgw_why why)
{
    return FGW_GRANT_CLOSED_FOR(why, atomic_load_explicit(&grantee->slot->phase, memory_order_relaxed));
}

/* Closes the grant, by these bits, when `number` holds it, nobody uses it and none of its workers is about to; then
 * hands it on. */
static void drop(struct fgw_control *control, uint32_t number, uint64_t closed)
{
    uint64_t word = atomic_load(&control->grant->word);
    if (fgw_grant_holder(word) == number && !(word & FGW_GRANT_CLOSED) && !fgw_vgpu_has_users(control, number) &&
        !fgw_vgpu_waits(control, number)) {
        atomic_compare_exchange_strong(&control->grant->word, &word, word | closed);
    }
    fgw_grant_pass(control);
}

bool fgw_grantee_is_there(const struct fgw_control *control, uint32_t vgpu, uint32_t slot)
{
    return vgpu < FGW_MAX_VGPUS && slot < FGW_MAX_WORKERS && control->own[vgpu] &&
           atomic_load(&control->decided->vgpus[vgpu].is_used) &&
           fgw_set_has(&control->decided->vgpus[vgpu].members, slot);
}

bool fgw_grantee_attach(struct fgw_grantee *grantee, struct fgw_control *control, uint32_t vgpu, uint32_t slot)
{
    if (!fgw_grantee_is_there(control, vgpu, slot)) {
        return false;
    }
    *grantee = (struct fgw_grantee){
        .control = control,
        .decided = &control->decided->vgpus[vgpu],
        .account = control->accounts[vgpu],
        .seat = &control->grant->seats[vgpu],
        .slot = &control->own[vgpu]->workers[slot],
        .number = vgpu + 1,
        .slot_index = slot,
    };
    fgw_grant_go_over(grantee, atomic_load(&control->decided->epoch));
    return true;
}

/* Takes back every bit of a worker. */
static void clear(struct fgw_control *control, uint32_t slot)
{
    fgw_set_remove(&control->grant->waiting, slot);
    fgw_set_remove(&control->grant->users, slot);
    fgw_set_remove(&control->grant->running, slot);
    fgw_set_remove(&control->grant->interactive, slot);
}

void fgw_grantee_detach(struct fgw_grantee *grantee)
{
    grantee->is_user = false;
    grantee->is_waiting = false;
    clear(grantee->control, grantee->slot_index);
    atomic_store(&grantee->slot->is_in, 0);
    drop(grantee->control, grantee->number, closed_for(grantee, FGW_WHY_IDLE));
    atomic_store(&grantee->slot->memory_bytes, 0);
}

void fgw_grant_wait_cancel(struct fgw_grantee *grantee)
{
    if (grantee->is_waiting) {
        grantee->is_waiting = false;
        fgw_set_remove(&grantee->control->grant->waiting, grantee->slot_index);
        if (!grantee->is_user) {
            drop(grantee->control, grantee->number,
                 closed_for(grantee, FGW_WHY_IDLE)); /* it may have been granted for our sake */
        }
    }
}

/* False: it waited already. Else the daemon is to be told, by its bell. */
static bool begin_waiting(struct fgw_grantee *grantee, uint64_t since_ns)
{
    if (grantee->is_waiting) {
        return false;
    }
    if (!fgw_vgpu_waits(grantee->control, grantee->number)) {
        atomic_store_explicit(&grantee->account->waiting_since_ns, since_ns, memory_order_relaxed);
    }
    grantee->is_waiting = true;
    grantee->waiting_since_ns = since_ns;
    if (grantee->client) {
        uint32_t asker = atomic_load_explicit(&grantee->client->asker, memory_order_relaxed);
        atomic_store_explicit(&grantee->slot->asker, asker, memory_order_relaxed);
    }
    fgw_set_add(&grantee->control->grant->waiting, grantee->slot_index);
    return true;
}

/* When a turn begins that is entered at `now_ns`: not before the grant came. Who lost its CPU between its look at the
 * clock and its entry took that look before, and whom the grant came from would seem to have come later than the turn.
 */
static uint64_t turn_start_ns(struct fgw_control *control, uint64_t now_ns)
{
    fgw_grant_elapsed_ns(control, atomic_load(&control->grant->word), now_ns);
    const uint64_t ahead_ns = (atomic_load(&control->grant->slice_start) - now_ns) & FGW_SLICE_TIME_MASK;
    return ahead_ns >> (FGW_SLICE_TIME_BITS - 1) ? now_ns : now_ns + ahead_ns;
}

static void begin_turn(struct fgw_grantee *grantee, uint64_t now_ns)
{
    grantee->turn_since_ns = turn_start_ns(grantee->control, now_ns);
    grantee->turn_waited_ns = grantee->is_waiting ? now_ns - grantee->waiting_since_ns : 0;
    fgw_hand_over_waited(grantee->slot, grantee->turn_waited_ns);
    grantee->turn_held_ns = grantee->turn_spared_ns = 0;
    fgw_grant_is_ahead(grantee); /* now, as who waits is there */
    fgw_hand_over_enter(grantee->control, atomic_load(&grantee->control->grant->word), now_ns);
    grantee->turn_round_trips = atomic_load_explicit(&grantee->slot->nr_round_trips, memory_order_relaxed);
}

/* Whether it pays to coschedule the client is judged by its turns alone: while others have the GPU it can only wait. */
static void end_turn(struct fgw_grantee *grantee, uint64_t now_ns)
{
    const uint64_t from_ns = grantee->turn_since_ns + grantee->turn_held_ns;
    grantee->judged_ns += now_ns > from_ns ? now_ns - from_ns : 0;
    grantee->judged_round_trips +=
        atomic_load_explicit(&grantee->slot->nr_round_trips, memory_order_relaxed) - grantee->turn_round_trips;
    if (grantee->judged_ns < FGW_INTERACTIVE_NS) {
        return;
    }
    if (grantee->judged_round_trips * FGW_INTERACTIVE_NS > FGW_INTERACTIVE_NR * grantee->judged_ns) {
        fgw_set_add(&grantee->control->grant->interactive, grantee->slot_index);
    } else {
        fgw_set_remove(&grantee->control->grant->interactive, grantee->slot_index);
    }
    grantee->judged_ns = 0;
    grantee->judged_round_trips = 0;
}

/* Whether its turns take most of their slices is what others may expect of its next one. What begins late in a slice
 * may be left for the next one, so a turn that ends a little early is none that ends at once. A turn that was cut short
 * tells nothing of it. */
static void note_slice(const struct fgw_grantee *grantee, uint64_t now_ns)
{
    const uint64_t slice_ns = fgw_grant_slice_ns(grantee);
    const uint64_t turn_ns = now_ns - grantee->turn_since_ns;
    const bool is_idle = fgw_grant_has(grantee);
    const bool is_by_bursts =
        slice_ns != atomic_load_explicit(&grantee->control->decided->slice_ns, memory_order_relaxed);
    const uint64_t least_ns = slice_ns - slice_ns / (is_by_bursts ? FGW_REQUEST_DIVISOR : FGW_EARLY_DIVISOR);
    const bool is_long = !is_idle || (turn_ns >= least_ns && turn_ns <= slice_ns);
    if (is_idle || turn_ns >= slice_ns / 2) {
        atomic_store_explicit(&grantee->account->has_long_turns, is_long, memory_order_relaxed);
    }
}

/* Sets the bit and looks: it is in when the grant is ours and open. Otherwise the bit is taken back. */
static bool try_enter(struct fgw_grantee *grantee, uint64_t now_ns)
{
    struct fgw_control *control = grantee->control;
    uint64_t word = atomic_load(&control->grant->word);
    if (fgw_grant_holder(word) == FGW_NOBODY && !fgw_is_apart(control) && !fgw_control_anybody_waits(control)) {
        uint64_t taken = FGW_GRANT_WORD(FGW_GRANT_SEQUENCE(word) + 1, grantee->number);
        fgw_set_add(&control->grant->users, grantee->slot_index); /* before the grant: nobody may find it unused */
        if (atomic_compare_exchange_strong(&control->grant->word, &word, taken)) {
            fgw_grant_elapsed_ns(control, taken, now_ns);
            fgw_hand_over_note(control, word, taken, FGW_WHY_FREE);
            atomic_fetch_add_explicit(&grantee->seat->nr_grants, 1, memory_order_relaxed);
            return true;
        }
    }
    fgw_set_add(&control->grant->users, grantee->slot_index);
    word = atomic_load(&control->grant->word);
    if (fgw_grant_holder(word) == grantee->number && !(word & FGW_GRANT_CLOSED)) {
        return true;
    }
    fgw_set_remove(&control->grant->users, grantee->slot_index);
    fgw_grant_pass(control); /* a closer may have seen our bit and left the rest to us */
    return false;
}

bool fgw_grant_enter(struct fgw_grantee *grantee, uint64_t now_ns)
{
    const bool is_back = grantee->put_off_ns != 0 && now_ns - grantee->put_off_ns < FGW_SWITCH_NS;
    return fgw_grant_reenter(grantee, is_back ? grantee->put_off_ns : now_ns, now_ns);
}

bool fgw_grant_reenter(struct fgw_grantee *grantee, uint64_t since_ns, uint64_t now_ns)
{
    struct fgw_control *control = grantee->control;
    if (grantee->is_user) {
        return fgw_grant_has(grantee);
    }
    atomic_store(&grantee->slot->is_in, 1); /* who begins another epoch sees this, or is seen here */
    fgw_grant_follow(grantee);
    bool is_in = try_enter(grantee, now_ns);
    if (!is_in) {
        if (begin_waiting(grantee, since_ns)) {
            fgw_control_ring_bell(control);
        }
        fgw_grant_pass(control); /* it may have become free before we were seen waiting */
        uint64_t word = atomic_load(&control->grant->word);
        is_in = fgw_grant_holder(word) == grantee->number && !(word & FGW_GRANT_CLOSED) && try_enter(grantee, now_ns);
    }
    if (is_in) {
        grantee->is_user = true;
        begin_turn(grantee, now_ns);
        if (grantee->is_waiting) {
            grantee->is_waiting = false;
            fgw_set_remove(&control->grant->waiting, grantee->slot_index);
        }
    } else {
        atomic_store(&grantee->slot->is_in, 0);
    }
    return is_in;
}

bool fgw_grant_pass_over(struct fgw_control *control, uint64_t word, uint32_t why)
{
    uint32_t holder = fgw_grant_holder(word);
    uint32_t next = fgw_grant_choose(control, holder);
    return holder != FGW_NOBODY && next != FGW_NOBODY && hand_on(control, word, next, why);
}

bool fgw_grant_renew(struct fgw_grantee *grantee, uint64_t now_ns)
{
    struct fgw_control *control = grantee->control;
    uint64_t word = atomic_load(&control->grant->word);
    uint64_t start = atomic_load(&control->grant->slice_start);
    if ((word & (FGW_GRANT_CLOSED | 0xffffu)) != grantee->number || !fgw_grant_is_first(grantee)) {
        return false;
    }
    /* Fails when the grant has been handed on since: the new holder's start is another. */
    const uint64_t now = fgw_stamp(FGW_GRANT_SEQUENCE(word), now_ns);
    if (fgw_stamp_tag(start) != fgw_stamp_tag(now) ||
        !atomic_compare_exchange_strong(&control->grant->slice_start, &start, now)) {
        return false;
    }
    fgw_grant_is_ahead(grantee); /* now, likewise */
    return true;
}

void fgw_grant_alert_next(struct fgw_grantee *grantee)
{
    const uint32_t next = fgw_grant_choose(grantee->control, grantee->number);
    if (next != FGW_NOBODY) {
        fgw_bell_ring(&grantee->control->grant->seats[next - 1].bell);
    }
}

void fgw_grant_close(struct fgw_grantee *grantee)
{
    const bool is_used_up = fgw_allowance_left_ns(grantee, fgw_clock_ns()) == 0;
    const uint64_t closed = closed_for(grantee, is_used_up ? FGW_WHY_LIMIT : FGW_WHY_SLICE);
    uint64_t word = atomic_load(&grantee->control->grant->word);
    while (fgw_grant_holder(word) == grantee->number && !(word & FGW_GRANT_CLOSED)) {
        if (atomic_compare_exchange_weak(&grantee->control->grant->word, &word, word | closed)) {
            fgw_grant_alert_next(grantee);
            break;
        }
    }
}

void fgw_grant_set_running(struct fgw_grantee *grantee, bool is_running)
{
    if (fgw_set_has(&grantee->control->grant->running, grantee->slot_index) == is_running) {
        return; /* nobody else changes it while the worker lives */
    }
    if (is_running) {
        fgw_set_add(&grantee->control->grant->running, grantee->slot_index);
    } else {
        fgw_set_remove(&grantee->control->grant->running, grantee->slot_index);
    }
}

/* What it had beyond its turn while others waited: a kernel that could not be stopped, or what was expected to be
 * shorter. */
static void note_overuse(const struct fgw_grantee *grantee, uint64_t now_ns)
{
    const uint64_t word = atomic_load(&grantee->control->grant->word);
    if (fgw_grant_holder(word) != grantee->number || !fgw_grant_others_wait(grantee)) {
        return;
    }
    const uint64_t slice_ns = fgw_grant_slice_ns(grantee);
    const uint64_t passed_ns = fgw_grant_elapsed_ns(grantee->control, word, now_ns);
    if (passed_ns > slice_ns) {
        atomic_fetch_add_explicit(&grantee->slot->overuse_ns, passed_ns - slice_ns, memory_order_relaxed);
    }
}

void fgw_grant_leave(struct fgw_grantee *grantee, bool wants_more, uint64_t now_ns)
{
    if (!grantee->is_user) {
        return;
    }
    note_overuse(grantee, now_ns);
    end_turn(grantee, now_ns);
    note_slice(grantee, now_ns);
    grantee->put_off_ns = fgw_grant_has(grantee) ? 0 : now_ns;
    const bool is_waiting_now = wants_more && begin_waiting(grantee, now_ns);
    grantee->is_user = false;
    fgw_set_remove(&grantee->control->grant->users, grantee->slot_index);
    atomic_store(&grantee->slot->is_in, 0);
    drop(grantee->control, grantee->number, closed_for(grantee, FGW_WHY_IDLE));
    if (is_waiting_now) {
        fgw_control_ring_bell(grantee->control); /* last: to wake the daemon takes time that the next one waits for */
    }
}

bool fgw_control_evict(struct fgw_control *control, uint32_t sequence)
{
    const uint64_t word = atomic_load(&control->grant->word);
    const bool is_given = FGW_GRANT_SEQUENCE(word) == sequence && fgw_grant_pass_over(control, word, FGW_WHY_EVICTED);
    fgw_grant_pass(control);
    return is_given;
}

void fgw_grant_clear(struct fgw_control *control, uint32_t slot)
{
    clear(control, slot);
    drop(control, atomic_load(&control->decided->workers[slot].vgpu) + 1, FGW_GRANT_CLOSED_FOR(FGW_WHY_DIED, 0));
}
