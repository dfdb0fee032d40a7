#include "turn/newcomer.h"

#include "client/state.h"
#include "page/grant.h"
#include "page/outlook.h"
#include "turn/state.h"

/* Who is behind by a slice waits for a thirty-second of one: of 30 ms that is six times what a hand-over costs, which
 * is little beside what it is owed. */
#define FGW_OWED_SLICE_DIVISOR 32
/* A look for newcomers compares all who wait, so it is rare; one is seen late by as much as the work that is let go on
 * at a hand-over. */
#define FGW_NEWCOMER_LOOK_NS UINT64_C(50000)

/* Somebody slept, comes back and stands before this vGPU, which has had some of its slice; or, sooner, is a slice
 * behind. What is shorter than a switch is no sleep: so programs that wait for each kernel are away after their turns.
 * One that will use its whole turn would keep this vGPU waiting for longer than it waits itself. One that is urgent
 * does not wait. */
static bool is_there(struct fgw_outlook *outlook)
{
    const uint64_t slice_ns = outlook->slice_ns, had_ns = outlook->had_ns;
    return fgw_outlook_next_is_urgent(outlook) ||
           (had_ns >= slice_ns / FGW_MIN_SLICE_DIVISOR && fgw_outlook_has_newcomer(outlook, FGW_SWITCH_NS, 0) &&
            !fgw_outlook_next_stays(outlook)) ||
           (had_ns >= slice_ns / FGW_OWED_SLICE_DIVISOR && fgw_outlook_has_newcomer(outlook, 0, slice_ns));
}

void fgw_newcomer_look(struct fgw_worker *worker, struct fgw_outlook *outlook, bool can_stop)
{
    struct fgw_newcomers *newcomers = &worker->turn->newcomers;
    uint64_t *looked_ns = can_stop ? &newcomers->looked_ns : &newcomers->urgent_looked_ns;
    if (outlook->left_ns == 0 || outlook->now_ns - *looked_ns < FGW_NEWCOMER_LOOK_NS) {
        return;
    }
    *looked_ns = outlook->now_ns;
    if (can_stop ? is_there(outlook) : fgw_outlook_next_is_urgent(outlook)) {
        newcomers->hurried_sequence = outlook->sequence;
    }
}

bool fgw_newcomer_hurries(const struct fgw_worker *worker, const struct fgw_outlook *outlook)
{
    return worker->turn->newcomers.hurried_sequence == outlook->sequence;
}
