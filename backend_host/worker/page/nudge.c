/*
 * What a waiting worker does about a holder that does not use the grant, or that died while the daemon was dead, too:
 * see grant.h.
 *
 * Wrong when: a worker is not run within 2 ms of its grant, on a busy host. It loses a turn that it had waited for, and
 * pays for it.
 */
#include "page/apart.h"
#include "page/grant.h"
#include "page/lives.h"
#include "page/outlook.h"
#include "page/sets.h"

/* Nobody else is left to learn of deaths. */
static void clear_dead(struct fgw_control *control, uint32_t number)
{
    const struct fgw_worker_set *members = &control->decided->vgpus[number - 1].members;
    for (uint32_t slot = 0; slot < FGW_MAX_WORKERS; slot++) {
        const bool is_used = fgw_set_has(&control->grant->users, slot) && fgw_set_has(members, slot);
        if (is_used && fgw_life_has_ended(control->lives, slot)) {
            fgw_grant_clear(control, slot);
        }
    }
}

void fgw_grant_nudge(struct fgw_grantee *grantee, uint64_t now_ns)
{
    struct fgw_control *control = grantee->control;
    if (fgw_is_apart(control)) {
        if (fgw_life_has_ended(control->lives, FGW_LIFE_OF_DAEMON)) {
            fgw_grant_come_back(grantee);
        }
        return; /* else the daemon looks after all holders */
    }
    uint64_t word = atomic_load(&control->grant->word);
    uint32_t holder = fgw_grant_holder(word);
    if (!fgw_is_vgpu(holder) || fgw_grant_elapsed_ns(control, word, now_ns) < FGW_GRANT_UNUSED_NS) {
        fgw_grant_pass(control);
        return;
    }
    if (fgw_life_has_ended(control->lives, FGW_LIFE_OF_DAEMON)) {
        clear_dead(control, holder);
    }
    const uint64_t closed = word | FGW_GRANT_CLOSED_FOR(FGW_WHY_UNUSED, 0);
    if (holder != grantee->number && !(word & FGW_GRANT_CLOSED) && !fgw_vgpu_has_users(control, holder) &&
        atomic_compare_exchange_strong(&control->grant->word, &word, closed)) {
        /* It pays for that, or it would be next again, and again do nothing. */
        atomic_fetch_add(&control->grant->seats[holder - 1].nr_unused, 1);
        if (!fgw_vgpu_has_users(control, holder)) {
            fgw_grant_pass_over(control, closed, FGW_WHY_UNUSED);
        }
    }
    fgw_grant_pass(control);
}
