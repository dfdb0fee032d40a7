#include "page/apart.h"

#include "page/sets.h"

static void move_bit(struct fgw_worker_set *from, struct fgw_worker_set *to, uint32_t slot, bool is_in)
{
    if (is_in) {
        fgw_set_add(to, slot);
    }
    fgw_set_remove(from, slot);
}

/* Whether it uses the grant or waits it knows by itself: bits in what all share may be anybody's. Of the others a wrong
 * one lasts until it next has work, or its next turn ends. */
void fgw_grant_go_over(struct fgw_grantee *grantee, uint32_t epoch)
{
    struct fgw_control *control = grantee->control;
    const uint32_t index = grantee->number - 1, slot = grantee->slot_index;
    struct fgw_grant *from = control->grant;
    struct fgw_grant *to = epoch % 2 != 0 ? &control->own[index]->grant : control->shared;
    const bool is_running = fgw_set_has(&from->running, slot), is_interactive = fgw_set_has(&from->interactive, slot);
    control->grant = to;
    grantee->seat = &to->seats[index];
    if (from != to) {
        move_bit(&from->users, &to->users, slot, grantee->is_user);
        move_bit(&from->waiting, &to->waiting, slot, grantee->is_waiting);
        move_bit(&from->running, &to->running, slot, is_running);
        move_bit(&from->interactive, &to->interactive, slot, is_interactive);
    } else if (grantee->is_user || grantee->is_waiting) { /* it was away for a whole epoch, and all began anew */
        fgw_set_add(grantee->is_user ? &to->users : &to->waiting, slot);
    }
    grantee->epoch = epoch;
    atomic_store(&grantee->slot->epoch, epoch);
}

void fgw_grant_follow(struct fgw_grantee *grantee)
{
    const uint32_t epoch = atomic_load(&grantee->control->decided->epoch);
    if ((int32_t)(epoch - grantee->epoch) > 0) { /* one that came back by itself is ahead */
        fgw_grant_go_over(grantee, epoch);
    }
}

void fgw_grant_come_back(struct fgw_grantee *grantee)
{
    fgw_grant_go_over(grantee, grantee->epoch + 1);
}
