/*
 * The grant from a worker's side: entering, waiting, leaving, charging; and what the daemon may do to it. control.h
 * tells the protocol.
 *
 * A worker asks `fgv_grant_has` before each submission: a load and a compare while nothing changed. When it says no,
 * `fgv_grant_enter` tries to get in, and on failure the worker is marked as waiting and sleeps on its vGPU's bell.
 */
#ifndef BACKEND_HOST_GRANT_H
#define BACKEND_HOST_GRANT_H

#include "control.h"

/* A holder whose workers submit nothing for this long, while somebody waits, loses the grant: they may be inside a long
 * call. */
#define FGV_GRANT_UNUSED_NS UINT64_C(2000000)

/* Of the device's time for a switch to another vGPU and back: who is away for less has not slept. */
#define FGV_SWITCH_NS UINT64_C(400000)

/* A vGPU whose clients wait for more than NR answers within this time of its turns is coscheduled (paper, 3.2.3). */
#define FGV_INTERACTIVE_NS UINT64_C(10000000)
#define FGV_INTERACTIVE_NR UINT64_C(10)

/* cffi: begin */
/* A worker's private view. */
struct fgv_client;
struct fgv_grantee {
    struct fgv_control *control;
    struct fgv_vgpu_slot *vgpu;
    struct fgv_worker_slot *slot;
    struct fgv_client *client; /* whose entry shows the guest what is counted for this worker; NULL: none */
    uint32_t number;           /* of the vGPU: index + 1, as in the grant word */
    uint32_t slot_index;
    bool is_user;
    bool is_waiting;
    uint64_t waiting_since_ns;
    uint64_t turn_waited_ns; /* for this turn; 0: it had it at once */
    uint64_t put_off_ns;     /* its last turn ended then, while it was at work; 0: it had nothing to do */
    /* How often its client waits: answers and time of its turns, of this one from here on and of those before. What a
     * turn was held for without use is left out: the later the client's CPU comes to it, the longer that is. */
    uint64_t turn_since_ns;
    uint64_t turn_held_ns;
    uint64_t turn_round_trips;
    uint64_t window_ns;
    uint64_t window_round_trips;
};

/* Both indices are bounded here; false when one is out of range or the vGPU slot is free. Makes the worker a member of
 * the vGPU. */
bool fgv_grantee_attach(struct fgv_grantee *grantee, struct fgv_control *control, uint32_t vgpu, uint32_t slot);
/* Takes every mark back and hands the grant on when this was its last user. */
void fgv_grantee_detach(struct fgv_grantee *grantee);
/* cffi: end */

/* True while new work may be submitted. Relaxed: a grant that is closed this very moment still counts this worker as a
 * user, so it cannot have been handed on. */
static inline bool fgv_grant_has(const struct fgv_grantee *grantee)
{
    uint64_t word = atomic_load_explicit(&grantee->control->grant, memory_order_relaxed);
    return grantee->is_user && (word & (FGV_GRANT_CLOSED | 0xffffu)) == grantee->number;
}

/* cffi: begin */
/* Gets in when the grant is free or its own and open. False: it is marked as waiting (the daemon is told once), since
 * the end of its last turn if that was cut off no longer than FGV_SWITCH_NS ago: it has not slept. */
bool fgv_grant_enter(struct fgv_grantee *grantee, uint64_t now_ns);
/* The same for one that has wanted it since then without having slept: it is no newcomer to turns that began later. */
bool fgv_grant_reenter(struct fgv_grantee *grantee, uint64_t since_ns, uint64_t now_ns);
/* Sleeping without losing the wake-up: take the bell, try to enter, and sleep only if that failed. `kick` is NULL or a
 * second futex, slept on while it is 1. */
uint32_t fgv_grant_bell(const struct fgv_grantee *grantee);
void fgv_grant_sleep(struct fgv_grantee *grantee, uint32_t bell, void *kick, uint64_t timeout_ns);
/* While waiting: takes the grant from a holder that does not use it, and frees it from users that died with nobody to
 * say so. */
void fgv_grant_nudge(struct fgv_grantee *grantee, uint64_t now_ns);
/* True when a worker of another vGPU waits: loads of one cache line while there is none. */
bool fgv_grant_others_wait(const struct fgv_grantee *grantee);
/* True when no other vGPU that waits stands before its own. */
bool fgv_grant_is_first(const struct fgv_grantee *grantee);
/* True when the next vGPU did not wait yet when this worker's turn was `late_ns` old, and stands before its own, even
 * if it had been charged for `owed_ns` more. */
bool fgv_grant_has_newcomer(const struct fgv_grantee *grantee, uint64_t late_ns, uint64_t owed_ns);
/* For how long another vGPU has had the grant in one go, with work on the device now; 0: none has. */
uint64_t fgv_grant_beside_ns(const struct fgv_grantee *grantee, uint64_t now_ns);
/* Whether the holder, by its last turn, will use most of its slice. */
bool fgv_grant_holder_stays(const struct fgv_grantee *grantee);
/* The same of the one that is next. */
bool fgv_grant_next_stays(const struct fgv_grantee *grantee);
/* How much is left of the slice, 0 when it is over or the grant was taken away. Says nothing about whether anybody
 * waits. */
uint64_t fgv_grant_left_ns(const struct fgv_grantee *grantee, uint64_t now_ns);
/* Another slice for a holder that stands before all who wait: handing over would only bring the grant back. */
bool fgv_grant_renew(struct fgv_grantee *grantee, uint64_t now_ns);
/* Whoever should be next wakes up while our queue runs dry: waking takes longer than handing over. */
void fgv_grant_alert_next(struct fgv_grantee *grantee);
/* No new work from anybody of the vGPU. Users leave when theirs is done. */
void fgv_grant_close(struct fgv_grantee *grantee);
/* All work of this worker is done, or others may run beside it. `wants_more`: it goes to the end of the queue,
 * otherwise it has nothing to submit.
 */
void fgv_grant_leave(struct fgv_grantee *grantee, bool wants_more, uint64_t now_ns);
/* No more a waiter: what waited was dropped. */
void fgv_grant_wait_cancel(struct fgv_grantee *grantee);
/* Whether the worker has work on the device. */
void fgv_grant_set_running(struct fgv_grantee *grantee, bool is_running);
/* The GPU worked for this worker in [from_ns, to_ns]. What another worker of the vGPU was charged for the same time is
 * not charged again; where other vGPUs have work on the device too, it is charged in part. */
void fgv_grant_charge(struct fgv_grantee *grantee, uint64_t from_ns, uint64_t to_ns);
/* The same, half of it, whoever else has work on the device. */
void fgv_grant_charge_half(struct fgv_grantee *grantee, uint64_t from_ns, uint64_t to_ns);
/* The holder, of another vGPU, is not charged for the time until then: it is kept off the device. */
void fgv_grant_spare_holder(struct fgv_grantee *grantee, uint64_t until_ns);
/* The grant was kept from others for so long with nothing on the GPU: no use of the GPU, and paid for all the same. */
void fgv_grant_charge_hold(struct fgv_grantee *grantee, uint64_t held_ns);

/* Memory against the vGPU's quota: false, and nothing counted, when it would not fit. */
bool fgv_quota_take(struct fgv_grantee *grantee, uint64_t bytes);
void fgv_quota_give(struct fgv_grantee *grantee, uint64_t bytes);
/* What the vGPU's workers hold together, and the quota (0: none). */
uint64_t fgv_quota_used(const struct fgv_grantee *grantee, uint64_t *quota_bytes);

/* For the daemon. */

struct fgv_grant_reading {
    uint32_t holder; /* vGPU index + 1, or 0 */
    uint32_t is_closed;
    uint32_t nr_users;
    uint32_t sequence;
    uint64_t since_ns;
};

void fgv_control_grant_read(struct fgv_control *control, struct fgv_grant_reading *reading);
/* Bit mask of vGPUs with a waiting worker; since_ns[vgpu], of FGV_MAX_VGPUS, is filled for those. */
uint64_t fgv_control_backlogged(struct fgv_control *control, uint64_t *since_ns);
/* The same, with who holds the grant. */
uint64_t fgv_control_active(struct fgv_control *control);
bool fgv_control_evict(struct fgv_control *control);
/* Hands the grant on if nobody may use it any more: it is free or closed, without users. True when a vGPU got it. */
bool fgv_grant_pass(struct fgv_control *control);
/* Everything a dead worker held is taken back. */
void fgv_grant_repair(struct fgv_control *control, uint32_t slot);

uint32_t fgv_control_wait_bell(struct fgv_control *control, uint32_t seen, uint64_t timeout_ns);
/* The same, until other vGPUs than those of `active` have or want the GPU; when it rings without that, for 30 ms at
 * most. */
uint32_t fgv_control_wait_news(struct fgv_control *control, uint32_t seen, uint64_t active, uint64_t timeout_ns);
uint32_t fgv_control_bell(struct fgv_control *control);
void fgv_control_ring_bell(struct fgv_control *control);

uint64_t fgv_clock_ns(void);
/* cffi: end */

/* Changes the futex, and wakes all that sleep on it. */
void fgv_bell_ring(_Atomic uint32_t *bell);

/* How it stands with what it was charged up to now; see control.h. */
static inline double fgv_vgpu_standing(const struct fgv_vgpu_slot *vgpu)
{
    uint64_t charged_ns = atomic_load_explicit(&vgpu->used_ns, memory_order_relaxed) +
                          atomic_load_explicit(&vgpu->held_ns, memory_order_relaxed);
    return atomic_load_explicit(&vgpu->standing, memory_order_relaxed) +
           atomic_load_explicit(&vgpu->standing_per_ns, memory_order_relaxed) * (double)charged_ns;
}

/* Sets of workers. */
static inline void fgv_set_add(struct fgv_worker_set *set, uint32_t slot)
{
    atomic_fetch_or(&set->words[slot / 64], UINT64_C(1) << (slot % 64));
}

static inline void fgv_set_remove(struct fgv_worker_set *set, uint32_t slot)
{
    atomic_fetch_and(&set->words[slot / 64], ~(UINT64_C(1) << (slot % 64)));
}

static inline bool fgv_set_has(const struct fgv_worker_set *set, uint32_t slot)
{
    return (atomic_load(&set->words[slot / 64]) >> (slot % 64)) & 1u;
}

/* How many are in both. */
uint32_t fgv_set_nr_common(const struct fgv_worker_set *a, const struct fgv_worker_set *b);

#endif
