#define _GNU_SOURCE
#include "device/apart.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "page/apart.h"
#include "page/bell.h"
#include "page/grant.h"
#include "page/hand_over.h"
#include "page/outlook.h"
#include "page/sets.h"

/* A hand-over comes so late. Twice as often takes twice the CPU time, and makes no share more even. */
#define FGW_STEP_NS UINT64_C(100000)
enum { USERS, WAITING, RUNNING, INTERACTIVE, NR_SETS };

/* Of one vGPU: what it was shown, and so what is in its grant but for its own workers' bits. */
struct shown {
    uint32_t generation; /* 0: none */
    uint64_t word;
    uint64_t members[FGW_WORKER_WORDS];
    uint64_t others[NR_SETS][FGW_WORKER_WORDS];
};

struct fgw_apart {
    struct fgw_control *control;
    uint64_t quiet_ns;
    struct fgw_grant master; /* that the daemon goes by */
    uint64_t begun_ns;
    bool is_quiet; /* nobody goes by another grant any more */
    uint64_t gathered[NR_SETS][FGW_WORKER_WORDS];
    struct shown shown[FGW_MAX_VGPUS];
};

static struct fgw_worker_set *set_of(struct fgw_grant *grant, uint32_t set)
{
    struct fgw_worker_set *const sets[] = {&grant->users, &grant->waiting, &grant->running, &grant->interactive};
    return sets[set];
}

static struct fgw_grant *grant_of(const struct fgw_apart *apart, uint32_t vgpu)
{
    return &apart->control->own[vgpu]->grant;
}

/* Another vGPU has come to this place, or the epoch is new. Bits of its own workers stay: see hear_sets. */
static void renew(struct fgw_apart *apart, uint32_t vgpu, uint32_t generation)
{
    struct fgw_grant *grant = grant_of(apart, vgpu);
    apart->shown[vgpu] = (struct shown){.generation = generation};
    for (uint32_t set = 0; set < NR_SETS; set++) {
        for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
            const uint64_t said = atomic_load(&set_of(grant, set)->words[i]);
            const uint64_t members = atomic_load(&apart->control->decided->vgpus[vgpu].members.words[i]);
            atomic_fetch_and(&set_of(grant, set)->words[i], ~said | members);
        }
    }
    for (uint32_t i = 0; i < FGW_MAX_VGPUS; i++) {
        atomic_store(&grant->seats[i].nr_unused, atomic_load(&apart->master.seats[i].nr_unused));
    }
    for (uint32_t i = 0; i < FGW_MAX_VGPUS; i++) {
        atomic_store(&grant_of(apart, i)->seats[vgpu].nr_unused, atomic_load(&apart->master.seats[vgpu].nr_unused));
    }
    atomic_store(&grant->word, 0);
}

/* Makes the master of what all share, of which nothing is believed that decides anything. */
static void begin_master(struct fgw_apart *apart, const uint32_t *nr_unused)
{
    const struct fgw_grant *shared = apart->control->shared;
    const uint64_t word = atomic_load(&shared->word);
    memcpy(apart->master.hand_overs, shared->hand_overs, sizeof(shared->hand_overs)); /* for people */
    atomic_store(&apart->master.word, FGW_GRANT_WORD(FGW_GRANT_SEQUENCE(word) + 1, FGW_NOBODY));
    atomic_store(&apart->master.daemon_bell, atomic_load(&shared->daemon_bell) + 1);
    for (uint32_t i = 0; i < FGW_MAX_VGPUS; i++) {
        atomic_store(&apart->master.seats[i].nr_unused, nr_unused[i]);
        atomic_store(&apart->master.seats[i].nr_grants, atomic_load(&shared->seats[i].nr_grants));
    }
}

/* Whoever sleeps by that grant looks for another. */
static void wake(struct fgw_grant *grant)
{
    for (uint32_t vgpu = 0; vgpu < FGW_MAX_VGPUS; vgpu++) {
        fgw_bell_ring(&grant->seats[vgpu].bell);
    }
    fgw_bell_ring(&grant->boost_bell);
    fgw_bell_ring(&grant->daemon_bell);
}

struct fgw_apart *fgw_apart_new(struct fgw_control *control, uint64_t quiet_ns)
{
    struct fgw_apart *apart = calloc(1, sizeof(*apart));
    if (apart) {
        apart->control = control;
        apart->quiet_ns = quiet_ns;
    }
    return apart;
}

void fgw_apart_free(struct fgw_apart *apart)
{
    free(apart);
}

void fgw_apart_begin(struct fgw_apart *apart, const uint32_t *nr_unused)
{
    struct fgw_control *control = apart->control;
    apart->begun_ns = fgw_clock_ns();
    apart->is_quiet = false;
    begin_master(apart, nr_unused);
    const uint64_t word = atomic_load(&control->shared->word);
    control->grant = &apart->master;
    fgw_hand_over_note(control, word, atomic_load(&apart->master.word), FGW_WHY_EVICTED);
    for (uint32_t vgpu = 0; vgpu < FGW_MAX_VGPUS; vgpu++) {
        renew(apart, vgpu, atomic_load(&control->decided->vgpus[vgpu].generation));
    }
    atomic_fetch_add(&control->decided->epoch, 1);
    wake(control->shared);
}

/* Tells whether it may have made `word` of what it was shown: it closed its own turn. */
static bool may_have_closed(const struct shown *shown, uint32_t vgpu, uint64_t word)
{
    const uint64_t closed = FGW_GRANT_CLOSED_FOR(7, 15);
    return fgw_grant_holder(shown->word) == vgpu + 1 && !(shown->word & FGW_GRANT_CLOSED) &&
           (word & FGW_GRANT_CLOSED) && (word & ~closed) == (shown->word & ~closed);
}

/* Hears whether it has closed its turn. False: it wrote what it may not. */
static bool hear_word(struct fgw_apart *apart, uint32_t vgpu)
{
    struct shown *shown = &apart->shown[vgpu];
    uint64_t open = shown->word;
    const uint64_t word = atomic_load(&grant_of(apart, vgpu)->word);
    if (word == open) {
        return true;
    }
    if (!may_have_closed(shown, vgpu, word)) {
        atomic_store(&grant_of(apart, vgpu)->word, open);
        return false;
    }
    shown->word = word;
    atomic_compare_exchange_strong(&apart->master.word, &open, word); /* unless it was evicted */
    return true;
}

/* Gathers the bits of its workers. False: there are others than it was shown, which none of its workers changes. What
 * is there is read before who they are: who has a bit there is a member by then. Bits of one that has ended are left.
 */
static bool hear_sets(struct fgw_apart *apart, uint32_t vgpu)
{
    struct shown *shown = &apart->shown[vgpu];
    bool is_honest = true;
    for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
        uint64_t said[NR_SETS];
        for (uint32_t set = 0; set < NR_SETS; set++) {
            said[set] = atomic_load(&set_of(grant_of(apart, vgpu), set)->words[i]);
        }
        const uint64_t members = atomic_load(&apart->control->decided->vgpus[vgpu].members.words[i]);
        const uint64_t ended = shown->members[i] & ~members;
        shown->members[i] = members;
        for (uint32_t set = 0; set < NR_SETS; set++) {
            const uint64_t wrong = (said[set] ^ shown->others[set][i]) & ~members;
            is_honest &= (wrong & ~ended) == 0;
            if (wrong != 0) {
                atomic_fetch_xor(&set_of(grant_of(apart, vgpu), set)->words[i], wrong);
            }
            shown->others[set][i] &= ~members; /* who has joined since is its own */
            apart->gathered[set][i] |= said[set] & members;
        }
    }
    return is_honest;
}

/* Whether one that has not gone over yet may have its turn. It is looked for before the sets: one that goes over has
 * its bits in the other grant before it says so. */
static bool hear_late(struct fgw_apart *apart, uint32_t vgpu)
{
    bool is_late = false;
    const uint32_t epoch = atomic_load(&apart->control->decided->epoch);
    for (uint32_t slot = 0; slot < FGW_MAX_WORKERS; slot++) {
        const struct fgw_worker_slot *own = &apart->control->own[vgpu]->workers[slot];
        if (fgw_set_has(&apart->control->decided->vgpus[vgpu].members, slot) && atomic_load(&own->epoch) != epoch) {
            is_late |= atomic_load(&own->is_in) != 0;
        }
    }
    return is_late;
}

/* Gives the vGPUs that wrote what they may not. Words come before sets: who has closed has no new users. */
static uint64_t gather(struct fgw_apart *apart)
{
    uint64_t liars = 0;
    bool is_late = false;
    memset(apart->gathered, 0, sizeof(apart->gathered));
    for (uint32_t vgpu = 0; vgpu < FGW_MAX_VGPUS; vgpu++) {
        const struct fgw_decided_vgpu *decided = &apart->control->decided->vgpus[vgpu];
        const uint32_t generation = atomic_load(&decided->generation);
        if (!atomic_load(&decided->is_used)) {
            continue;
        }
        if (apart->shown[vgpu].generation != generation) {
            renew(apart, vgpu, generation);
        }
        is_late |= !apart->is_quiet && hear_late(apart, vgpu);
        const bool is_word = hear_word(apart, vgpu), is_set = hear_sets(apart, vgpu);
        liars |= is_word && is_set ? 0 : UINT64_C(1) << vgpu;
    }
    bool is_new = false, is_used = false;
    for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
        is_used |= apart->gathered[USERS][i] != 0;
        is_new |= (apart->gathered[WAITING][i] & ~atomic_load(&apart->master.waiting.words[i])) != 0;
        for (uint32_t set = 0; set < NR_SETS; set++) {
            atomic_store(&set_of(&apart->master, set)->words[i], apart->gathered[set][i]);
        }
    }
    if (is_new) {
        fgw_control_ring_bell(apart->control);
    }
    apart->is_quiet |= (!is_late && !is_used) || fgw_clock_ns() - apart->begun_ns >= apart->quiet_ns;
    return liars;
}

/* Takes the grant from one that does not come for it, as waiting workers do else: it pays for that. False: it came
 * while its grant was closed, and is not among those that were gathered. */
static bool pass_unused(struct fgw_apart *apart)
{
    struct fgw_control *control = apart->control;
    uint64_t word = atomic_load(&apart->master.word);
    const uint32_t holder = fgw_grant_holder(word);
    if (holder == FGW_NOBODY || (word & FGW_GRANT_CLOSED) || fgw_vgpu_has_users(control, holder) ||
        fgw_grant_elapsed_ns(control, word, fgw_clock_ns()) < FGW_GRANT_UNUSED_NS ||
        fgw_grant_choose(control, holder) == FGW_NOBODY) {
        return true;
    }
    struct shown *shown = &apart->shown[holder - 1];
    struct fgw_grant *its = grant_of(apart, holder - 1);
    const uint64_t closed = word | FGW_GRANT_CLOSED_FOR(FGW_WHY_UNUSED, 0);
    if (shown->word != word || !atomic_compare_exchange_strong(&its->word, &word, closed)) {
        return true; /* it has closed it itself */
    }
    shown->word = closed;
    const bool is_evicted = !atomic_compare_exchange_strong(&apart->master.word, &word, closed);
    if (fgw_set_has_common(&control->decided->vgpus[holder - 1].members, &its->users)) {
        return false;
    }
    if (is_evicted) {
        return true;
    }
    const uint32_t nr_unused = atomic_fetch_add(&apart->master.seats[holder - 1].nr_unused, 1) + 1;
    for (uint32_t vgpu = 0; vgpu < FGW_MAX_VGPUS; vgpu++) {
        atomic_store(&grant_of(apart, vgpu)->seats[holder - 1].nr_unused, nr_unused);
    }
    fgw_grant_pass_over(control, closed, FGW_WHY_UNUSED);
    return true;
}

static void show(struct fgw_apart *apart, uint32_t vgpu)
{
    struct shown *shown = &apart->shown[vgpu];
    struct fgw_grant *grant = grant_of(apart, vgpu);
    const uint64_t word = atomic_load(&apart->master.word);
    for (uint32_t set = 0; set < NR_SETS; set++) {
        for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
            const uint64_t others = apart->gathered[set][i] & ~shown->members[i];
            if (others != shown->others[set][i]) {
                atomic_fetch_xor(&set_of(grant, set)->words[i], others ^ shown->others[set][i]);
                shown->others[set][i] = others;
            }
        }
    }
    if (word != shown->word) {
        atomic_store(&grant->slice_start, atomic_load(&apart->master.slice_start));
        atomic_store(&grant->word, word);
        shown->word = word;
        if (fgw_grant_holder(word) == vgpu + 1) {
            fgw_bell_ring(&grant->seats[vgpu].bell);
        }
    }
}

static void show_all(struct fgw_apart *apart)
{
    for (uint32_t vgpu = 0; vgpu < FGW_MAX_VGPUS; vgpu++) {
        if (atomic_load(&apart->control->decided->vgpus[vgpu].is_used)) {
            show(apart, vgpu);
        }
    }
}

static uint64_t step(struct fgw_apart *apart)
{
    const uint64_t liars = gather(apart);
    if (apart->is_quiet && pass_unused(apart)) {
        fgw_grant_pass_on(apart->control);
    }
    show_all(apart);
    return liars;
}

static void nap(void)
{
    const struct timespec step = {.tv_nsec = FGW_STEP_NS};
    nanosleep(&step, NULL);
}

uint64_t fgw_apart_serve(struct fgw_apart *apart, uint64_t until_ns)
{
    uint64_t liars;
    while ((liars = step(apart)) == 0 && fgw_clock_ns() < until_ns) {
        nap();
    }
    if (liars != 0) {
        nap(); /* who goes on until it is ended keeps this thread no busier than others do */
    }
    return liars;
}

/* Nobody gets it any more, and whoever has it leaves: also one that has it from before they went apart. */
static void close_master(struct fgw_apart *apart)
{
    const uint64_t end_ns = fgw_clock_ns() + apart->quiet_ns;
    uint64_t word = atomic_load(&apart->master.word);
    const uint32_t holder = fgw_grant_holder(word);
    while (fgw_grant_holder(word) != FGW_NOBODY && !(word & FGW_GRANT_CLOSED) &&
           !atomic_compare_exchange_weak(&apart->master.word, &word, word | FGW_GRANT_CLOSED_FOR(FGW_WHY_EVICTED, 0))) {
    }
    do {
        show_all(apart);
        nap();
        gather(apart);
    } while ((!apart->is_quiet || fgw_vgpu_has_users(apart->control, holder)) && fgw_clock_ns() < end_ns);
}

void fgw_apart_end(struct fgw_apart *apart)
{
    struct fgw_control *control = apart->control;
    struct fgw_grant *shared = control->shared;
    close_master(apart);
    const uint64_t word = atomic_load(&apart->master.word);
    atomic_store(&apart->master.word, FGW_GRANT_WORD(FGW_GRANT_SEQUENCE(word) + 1, FGW_NOBODY));
    fgw_hand_over_note(control, word, atomic_load(&apart->master.word), FGW_WHY_EVICTED);
    memcpy(shared->hand_overs, apart->master.hand_overs, sizeof(shared->hand_overs));
    show_all(apart);
    for (uint32_t set = 0; set < NR_SETS; set++) {
        for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
            atomic_store(&set_of(shared, set)->words[i], 0); /* each sets its own again */
        }
    }
    for (uint32_t i = 0; i < FGW_MAX_VGPUS; i++) {
        atomic_store(&shared->seats[i].nr_unused, atomic_load(&apart->master.seats[i].nr_unused));
        atomic_store(&shared->seats[i].nr_grants, atomic_load(&apart->master.seats[i].nr_grants));
        atomic_store(&shared->seats[i].spared_until_ns, 0);
    }
    atomic_store(&shared->word, atomic_load(&apart->master.word));
    control->grant = shared;
    atomic_fetch_add(&control->decided->epoch, 1);
    for (uint32_t vgpu = 0; vgpu < FGW_MAX_VGPUS; vgpu++) {
        fgw_bell_ring(&grant_of(apart, vgpu)->seats[vgpu].bell);
    }
    wake(&apart->master);
}
