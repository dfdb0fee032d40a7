/*
 * The grant from a worker's side: entering, waiting, leaving, charging; and what the daemon may do to it. layout.h
 * tells the protocol.
 *
 * A worker asks `fgw_grant_has` before each submission: a load and a compare while nothing changed. When it says no,
 * `fgw_grant_enter` tries to get in, and on failure the worker is marked as waiting and sleeps on its vGPU's bell.
 */
#ifndef BACKEND_HOST_GRANT_H
#define BACKEND_HOST_GRANT_H

#include "page/grantee.h"

/* A switch to another vGPU and back takes the device so long, twice 150 us and what else a hand-over takes
 * (docs/lab/hand-overs.md): who is away for less has not slept. */
#define FGW_SWITCH_NS UINT64_C(400000)

/* A vGPU whose clients wait for more than NR answers within this time of its turns is coscheduled: more than one in
 * each millisecond (paper, 3.2.3). Ten bound how far a few stray ones go. */
#define FGW_INTERACTIVE_NS UINT64_C(10000000)
#define FGW_INTERACTIVE_NR UINT64_C(10)

/* cffi: begin */
/* Both indices are bounded here; false when one is out of range, or the worker is none of the vGPU's. */
bool fgw_grantee_is_there(const struct fgw_control *control, uint32_t vgpu, uint32_t slot);
/* False when it is not there. */
bool fgw_grantee_attach(struct fgw_grantee *grantee, struct fgw_control *control, uint32_t vgpu, uint32_t slot);
/* Takes every bit back and hands the grant on when this was its last user. */
void fgw_grantee_detach(struct fgw_grantee *grantee);
/* cffi: end */

/* Takes the time that it waited for this turn; it is 0 from then on. */
static inline uint64_t fgw_grant_take_waited_ns(struct fgw_grantee *grantee)
{
    const uint64_t waited_ns = grantee->turn_waited_ns;
    grantee->turn_waited_ns = 0;
    return waited_ns;
}

/* Shows in which phase the worker is. */
static inline void fgw_grant_show_phase(const struct fgw_grantee *grantee, uint32_t phase)
{
    atomic_store_explicit(&grantee->slot->phase, phase, memory_order_relaxed);
}

/* Shows since when work of it has kept the device; 0: none does. */
static inline void fgw_grant_show_stall(const struct fgw_grantee *grantee, uint64_t since_ns)
{
    atomic_store_explicit(&grantee->slot->stalled_since_ns, since_ns, memory_order_relaxed);
}

/* cffi: begin */
/* Gets in when the grant is free or its own and open. False: it is marked as waiting (the daemon is told once), since
 * the end of its last turn if that was cut off no longer than FGW_SWITCH_NS ago: it has not slept. */
bool fgw_grant_enter(struct fgw_grantee *grantee, uint64_t now_ns);
/* Does the same for one that has wanted it since then without having slept: it is no newcomer to turns that began
 * later. */
bool fgw_grant_reenter(struct fgw_grantee *grantee, uint64_t since_ns, uint64_t now_ns);
/* While waiting: takes the grant from a holder that does not use it, and frees it from users that died with nobody to
 * say so. */
void fgw_grant_nudge(struct fgw_grantee *grantee, uint64_t now_ns);
/* Gives another slice to a holder that stands before all who wait: handing over would only bring the grant back. */
bool fgw_grant_renew(struct fgw_grantee *grantee, uint64_t now_ns);
/* Whoever should be next wakes up while our queue runs dry: waking takes longer than handing over. */
void fgw_grant_alert_next(struct fgw_grantee *grantee);
/* No new work from anybody of the vGPU. Users leave when theirs is done. */
void fgw_grant_close(struct fgw_grantee *grantee);
/* All work of this worker is done, or others may run beside it. `wants_more`: it goes to the end of the queue,
 * otherwise it has nothing to submit.
 */
void fgw_grant_leave(struct fgw_grantee *grantee, bool wants_more, uint64_t now_ns);
/* The worker waits no more: what waited was dropped. */
void fgw_grant_wait_cancel(struct fgw_grantee *grantee);
/* Says whether the worker has work on the device. */
void fgw_grant_set_running(struct fgw_grantee *grantee, bool is_running);
/* What follows is for the daemon. */

/* Hands the grant on, whoever uses it, to the next one that waits; false: there is none, or it has been handed on since
 * this sequence number. */
bool fgw_control_evict(struct fgw_control *control, uint32_t sequence);
/* Hands the grant on if nobody may use it any more: it is free or closed, without users. True when a vGPU got it. */
bool fgw_grant_pass(struct fgw_control *control);
/* cffi: end */

/* Does what fgw_grant_pass does also while vGPUs are apart: for whoever hands over among them. */
bool fgw_grant_pass_on(struct fgw_control *control);
/* Hands the grant on from a holder that is not to have it again, wanting it or not. False: nobody else wants it, or the
 * word is not `word` any more. */
bool fgw_grant_pass_over(struct fgw_control *control, uint64_t word, uint32_t why);
/* Takes back every bit of a dead worker, which had a vGPU, and hands the grant on if it was its last user. */
void fgw_grant_clear(struct fgw_control *control, uint32_t slot);

#endif
