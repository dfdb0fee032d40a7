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

/* A holder whose workers submit nothing for this long, while somebody waits, loses the grant: they may be inside a long
 * call. It is five times as long as any pause that is waited out for being shorter than a switch. Waiting ones look
 * this often. */
#define FGW_GRANT_UNUSED_NS UINT64_C(2000000)

/* A switch to another vGPU and back takes the device so long, twice 150 us and what else a hand-over takes
 * (docs/lab/hand-overs.md): who is away for less has not slept. */
#define FGW_SWITCH_NS UINT64_C(400000)

/* A vGPU whose clients wait for more than NR answers within this time of its turns is coscheduled: more than one in
 * each millisecond (paper, 3.2.3). Ten bound how far a few stray ones go. */
#define FGW_INTERACTIVE_NS UINT64_C(10000000)
#define FGW_INTERACTIVE_NR UINT64_C(10)

/* cffi: begin */
/* Both indices are bounded here; false when one is out of range or the vGPU slot is free. Makes the worker a member of
 * the vGPU. */
bool fgw_grantee_attach(struct fgw_grantee *grantee, struct fgw_control *control, uint32_t vgpu, uint32_t slot);
/* Takes every bit back and hands the grant on when this was its last user. */
void fgw_grantee_detach(struct fgw_grantee *grantee);
/* cffi: end */

/* It is true while new work may be submitted. Relaxed: a grant that is closed this very moment still counts this worker
 * as a user, so it cannot have been handed on. */
static inline bool fgw_grant_has(const struct fgw_grantee *grantee)
{
    uint64_t word = atomic_load_explicit(&grantee->control->grant, memory_order_relaxed);
    return grantee->is_user && (word & (FGW_GRANT_CLOSED | 0xffffu)) == grantee->number;
}

/* Takes the time that it waited for this turn; it is 0 from then on. */
static inline uint64_t fgw_grant_take_waited_ns(struct fgw_grantee *grantee)
{
    const uint64_t waited_ns = grantee->turn_waited_ns;
    grantee->turn_waited_ns = 0;
    return waited_ns;
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
/* It is true when a worker of another vGPU waits: loads of one cache line while there is none. */
bool fgw_grant_others_wait(const struct fgw_grantee *grantee);
/* It is true when no other vGPU that waits stands before its own. */
bool fgw_grant_is_first(const struct fgw_grantee *grantee);
/* It is true when the next vGPU did not wait yet when this worker's turn was `late_ns` old, and stands before its own,
 * even if it had been charged for `owed_ns` more. */
bool fgw_grant_has_newcomer(const struct fgw_grantee *grantee, uint64_t late_ns, uint64_t owed_ns);
/* Tells for how long another vGPU has had the grant in one go, with work on the device now; 0: none has. */
uint64_t fgw_grant_beside_ns(const struct fgw_grantee *grantee, uint64_t now_ns);
/* Tells whether the holder, by its last turn, will use most of its slice. */
bool fgw_grant_holder_stays(const struct fgw_grantee *grantee);
/* Tells the same of the one that is next. */
bool fgw_grant_next_stays(const struct fgw_grantee *grantee);
/* Tells how much is left of the slice, 0 when it is over or the grant was taken away. Says nothing about whether
 * anybody waits. */
uint64_t fgw_grant_left_ns(const struct fgw_grantee *grantee, uint64_t now_ns);
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

struct fgw_grant_reading {
    uint32_t holder; /* vGPU index + 1, or 0 */
    uint32_t is_closed;
    uint32_t nr_users;
    uint32_t sequence;
    uint64_t since_ns;
};

void fgw_control_grant_read(struct fgw_control *control, struct fgw_grant_reading *reading);
/* Bit mask of vGPUs with a waiting worker; since_ns[vgpu], of FGW_MAX_VGPUS, is filled for those. */
uint64_t fgw_control_backlogged(struct fgw_control *control, uint64_t *since_ns);
/* Tells the same, with who holds the grant. */
uint64_t fgw_control_active(struct fgw_control *control);
/* Hands the grant on, whoever uses it, to the next one that waits; false: there is none. */
bool fgw_control_evict(struct fgw_control *control);
/* Hands the grant on if nobody may use it any more: it is free or closed, without users. True when a vGPU got it. */
bool fgw_grant_pass(struct fgw_control *control);
/* Takes back everything that a dead worker had. */
void fgw_grant_repair(struct fgw_control *control, uint32_t slot);
/* cffi: end */

/* Tells how it stands with what it was charged up to now; see layout.h. */
static inline double fgw_vgpu_standing(const struct fgw_vgpu_slot *vgpu)
{
    uint64_t charged_ns = atomic_load_explicit(&vgpu->used_ns, memory_order_relaxed) +
                          atomic_load_explicit(&vgpu->held_ns, memory_order_relaxed);
    return atomic_load_explicit(&vgpu->standing, memory_order_relaxed) +
           atomic_load_explicit(&vgpu->standing_per_ns, memory_order_relaxed) * (double)charged_ns;
}

#endif
