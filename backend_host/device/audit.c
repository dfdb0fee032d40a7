#include "device/audit.h"

#include <string.h>

#include "page/apart.h"
#include "page/bell.h"
#include "page/grant.h"
#include "page/outlook.h"
#include "page/sets.h"
#include "turn/phase.h"

/* A time that was taken after the auditor's own look at the clock is ahead by less. */
#define FGW_AHEAD_NS UINT64_C(1000000)

_Static_assert(sizeof(((struct fgw_audit *)0)->users) == sizeof(struct fgw_worker_set), "sets");
_Static_assert(sizeof(((struct fgw_audit *)0)->claims) == FGW_MAX_VGPUS * sizeof(struct fgw_claim), "claims");

/* Adds what one worker says. */
static void hear(const struct fgw_control *control, struct fgw_audit *audit, uint32_t vgpu, uint32_t slot)
{
    const struct fgw_worker_slot *own = &control->own[vgpu]->workers[slot];
    const uint32_t phase = atomic_load(&own->phase);
    const enum fgw_stand stand = fgw_phase_stand((enum fgw_phase)phase);
    const enum fgw_work work = fgw_phase_work((enum fgw_phase)phase);
    const uint64_t bit = UINT64_C(1) << (slot % 64);
    struct fgw_claim *claim = &audit->claims[vgpu];
    claim->nr_workers++;
    claim->uses |= stand == FGW_USES;
    claim->waits |= stand == FGW_WAITS;
    claim->works |= work == FGW_WORK_ON || work == FGW_WORK_PAID;
    audit->users[slot / 64] |= stand == FGW_USES ? bit : 0;
    audit->waiting[slot / 64] |= stand == FGW_WAITS ? bit : 0;
    /* Of a tail the bit is there or not. */
    const bool is_running =
        work == FGW_WORK_ON || (work == FGW_WORK_PAID && fgw_set_has(&control->grant->running, slot));
    audit->running[slot / 64] |= is_running ? bit : 0;
}

/* The number is that of a vGPU or 0, and between it and the sequence there are the flag and its reasons. */
static bool is_word(uint64_t word)
{
    const uint64_t known = FGW_GRANT_WORD(UINT32_MAX, 0xffffu) | FGW_GRANT_CLOSED_FOR(7, 15);
    return (word & ~known) == 0 && fgw_grant_holder(word) == ((uint32_t)word & 0xffffu);
}

static bool is_ahead(uint64_t start, uint64_t now_ns)
{
    const uint64_t ahead_ns = (start - now_ns) & FGW_SLICE_TIME_MASK;
    return ahead_ns >> (FGW_SLICE_TIME_BITS - 1) == 0 && ahead_ns > FGW_AHEAD_NS;
}

void fgw_audit_look(struct fgw_control *control, struct fgw_audit *audit)
{
    const struct fgw_grant *grant = control->grant;
    memset(audit, 0, sizeof(*audit));
    audit->at_ns = fgw_clock_ns();
    audit->word = atomic_load(&grant->word);
    audit->holder = fgw_grant_holder(audit->word);
    audit->is_apart = fgw_is_apart(control);
    audit->is_word_wrong = !is_word(audit->word);
    audit->is_start_ahead = is_ahead(atomic_load(&grant->slice_start), audit->at_ns);
    for (uint32_t vgpu = 0; vgpu < FGW_MAX_VGPUS; vgpu++) {
        const struct fgw_decided_vgpu *decided = &control->decided->vgpus[vgpu];
        struct fgw_claim *claim = &audit->claims[vgpu];
        if (!atomic_load(&decided->is_used)) {
            continue;
        }
        claim->generation = atomic_load(&decided->generation);
        claim->nr_unused = atomic_load(&grant->seats[vgpu].nr_unused);
        const struct fgw_standing standing = fgw_vgpu_standing(control, vgpu);
        claim->standing = standing.now;
        claim->standing_per_ns = standing.per_ns;
        claim->turn_ns = fgw_vgpu_turn_ns(control, decided);
        claim->waiting_since_ns = atomic_load(&control->accounts[vgpu]->waiting_since_ns);
        audit->is_spare_ahead |= atomic_load(&grant->seats[vgpu].spared_until_ns) > audit->at_ns + FGW_AHEAD_NS;
        claim->used_ns = atomic_load(&control->accounts[vgpu]->used_ns);
        claim->held_ns = atomic_load(&control->accounts[vgpu]->held_ns);
        claim->nr_limits = atomic_load(&control->nr_limits[vgpu]); /* first: the word is at least as new */
        claim->limited_until_ns = atomic_load(&control->accounts[vgpu]->limited_until_ns);
        claim->limit_permille = atomic_load(&control->decided->vgpus[vgpu].limit_permille);
        claim->space = atomic_load(&decided->space);
        claim->is_urgent = atomic_load(&decided->is_urgent) != 0;
        claim->charged_until_ns = atomic_load(&control->accounts[vgpu]->charged_until_ns);
        for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
            for (uint64_t left = atomic_load(&decided->members.words[i]); left != 0; left &= left - 1) {
                hear(control, audit, vgpu, i * 64 + (uint32_t)__builtin_ctzll(left));
            }
        }
    }
    for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
        audit->users[i] ^= atomic_load(&grant->users.words[i]);
        audit->waiting[i] ^= atomic_load(&grant->waiting.words[i]);
        audit->running[i] ^= atomic_load(&grant->running.words[i]);
    }
}

/* Turns the bits that were wrong in all three looks. */
static uint32_t mend_set(struct fgw_worker_set *set, const uint64_t *before, const uint64_t *now, const uint64_t *still)
{
    uint32_t nr = 0;
    for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
        const uint64_t wrong = before[i] & now[i] & still[i];
        if (wrong != 0) {
            atomic_fetch_xor(&set->words[i], wrong);
            nr++;
        }
    }
    return nr;
}

uint32_t fgw_audit_mend(struct fgw_control *control, const struct fgw_audit *before, const struct fgw_audit *now)
{
    struct fgw_audit still;
    fgw_audit_look(control, &still);
    uint32_t nr = mend_set(&control->grant->users, before->users, now->users, still.users) +
                  mend_set(&control->grant->waiting, before->waiting, now->waiting, still.waiting) +
                  mend_set(&control->grant->running, before->running, now->running, still.running);
    if (now->is_start_ahead && still.is_start_ahead) {
        atomic_store(&control->grant->slice_start, fgw_stamp(FGW_GRANT_SEQUENCE(still.word), still.at_ns));
        nr++;
    }
    if (now->is_spare_ahead && still.is_spare_ahead) {
        for (uint32_t vgpu = 0; vgpu < FGW_MAX_VGPUS; vgpu++) {
            atomic_store(&control->grant->seats[vgpu].spared_until_ns, 0);
        }
        nr++;
    }
    if (nr != 0) {
        fgw_grant_pass(control);
    }
    return nr;
}

bool fgw_audit_take(struct fgw_control *control, uint64_t word, bool is_used)
{
    return fgw_grant_pass_over(control, word, is_used ? FGW_WHY_EVICTED : FGW_WHY_UNUSED);
}

void fgw_audit_set_unused(struct fgw_control *control, uint32_t vgpu, uint32_t nr_unused)
{
    atomic_store(&control->grant->seats[vgpu].nr_unused, nr_unused);
}
