/*
 * How all stand at this moment: who has the grant, who wants it, who would be next. A worker asks before it decides,
 * and the daemon for its policy.
 */
#ifndef BACKEND_HOST_OUTLOOK_H
#define BACKEND_HOST_OUTLOOK_H

#include "page/grantee.h"

/* A holder whose workers submit nothing for this long, while somebody waits, loses the grant: they may be inside a long
 * call. It is five times as long as any pause that is waited out for being shorter than a switch. Waiting ones look
 * this often. */
#define FGW_GRANT_UNUSED_NS UINT64_C(2000000)

/* `slice_start` of the page: a time below, and above it the lowest bits of the sequence number that it belongs to. */
#define FGW_SLICE_TIME_BITS 48
#define FGW_SLICE_TIME_MASK ((UINT64_C(1) << FGW_SLICE_TIME_BITS) - 1)

static inline uint64_t fgw_stamp(uint32_t sequence, uint64_t now_ns)
{
    return (uint64_t)(sequence & 0xffffu) << FGW_SLICE_TIME_BITS | (now_ns & FGW_SLICE_TIME_MASK);
}

static inline uint64_t fgw_stamp_tag(uint64_t stamp)
{
    return stamp & ~FGW_SLICE_TIME_MASK;
}

/* Tells how long a vGPU's turn may last while others wait. */
static inline uint64_t fgw_vgpu_turn_ns(const struct fgw_control *control, const struct fgw_decided_vgpu *vgpu)
{
    const uint64_t budget_ns = atomic_load_explicit(&vgpu->budget_ns, memory_order_relaxed);
    return budget_ns != 0 ? budget_ns : atomic_load_explicit(&control->decided->slice_ns, memory_order_relaxed);
}

/* The same of its own. */
static inline uint64_t fgw_grant_slice_ns(const struct fgw_grantee *grantee)
{
    return fgw_vgpu_turn_ns(grantee->control, grantee->decided);
}

/* Tells whether the device runs what several vGPUs have on it in turn. */
static inline bool fgw_grant_is_preemptive(const struct fgw_grantee *grantee)
{
    return grantee->control->decided->is_preemptive != 0;
}

/* Tells what the daemon wants of this worker: enum fgw_worker_command. */
static inline uint32_t fgw_grant_command(const struct fgw_grantee *grantee)
{
    const struct fgw_decided_worker *worker = &grantee->control->decided->workers[grantee->slot_index];
    return atomic_load_explicit(&worker->command, memory_order_relaxed);
}

/* Tells the number of the grant, which changes when it goes to another vGPU. */
static inline uint32_t fgw_grant_sequence(const struct fgw_grantee *grantee)
{
    return FGW_GRANT_SEQUENCE(atomic_load_explicit(&grantee->control->grant->word, memory_order_relaxed));
}

/* It is true while new work may be submitted. Relaxed: a grant that is closed this very moment still counts this worker
 * as a user, so it cannot have been handed on. */
static inline bool fgw_grant_has(const struct fgw_grantee *grantee)
{
    uint64_t word = atomic_load_explicit(&grantee->control->grant->word, memory_order_relaxed);
    return grantee->is_user && (word & (FGW_GRANT_CLOSED | 0xffffu)) == grantee->number;
}

/* cffi: begin */
/* It is true when a worker of another vGPU waits: loads of one cache line while there is none. */
bool fgw_grant_others_wait(const struct fgw_grantee *grantee);
/* It is true when no other vGPU that waits stands before its own. */
bool fgw_grant_is_first(const struct fgw_grantee *grantee);
/* Tells of a user whether its slice came before the turn of one that waited and stood before it, urgent or not. */
bool fgw_grant_is_ahead(struct fgw_grantee *grantee);
/* Tells whether another vGPU has the grant. */
bool fgw_grant_is_anothers(const struct fgw_grantee *grantee);
/* Tells whether this worker is the only one of its vGPU with work on the device, or none of them has any. */
bool fgw_grant_runs_alone(const struct fgw_grantee *grantee);
/* Tells for how long another vGPU has had the grant in one go, with work on the device now; 0: none has. */
uint64_t fgw_grant_beside_ns(const struct fgw_grantee *grantee, uint64_t now_ns);
/* Tells whether the holder, by its last turn, will use most of its slice. */
bool fgw_grant_holder_stays(const struct fgw_grantee *grantee);
/* Tells how much is left of the slice, 0 when it is over or the grant was taken away. Says nothing about whether
 * anybody waits. */
uint64_t fgw_grant_left_ns(const struct fgw_grantee *grantee, uint64_t now_ns);

/* How a vGPU stands with what it was charged up to now, and what that grows by with each ns. */
struct fgw_standing {
    double now, per_ns;
};

/* The one that is next of the other vGPUs. */
struct fgw_next {
    bool is_known; /* what follows has been looked up */
    bool is_there; /* any of them waits */
    bool stays;    /* by its last turn it will use most of its slice */
    bool is_urgent, is_own_urgent;
    bool is_companion; /* it may use the device at the same time: space.h */
    uint64_t since_ns;
    struct fgw_standing standing;
    double own_standing;
};

/* How all stand as a worker sees it in one look, taken once and handed down. To tell who is next all who wait are
 * compared, so that is looked up when it is first asked for: most looks do without. */
struct fgw_outlook {
    const struct fgw_grantee *grantee;
    uint64_t now_ns;
    uint64_t slice_ns;
    uint64_t left_ns;    /* of its turn, by its slice and its limit; 0: it is over, or nothing ends it */
    uint64_t had_ns;     /* of its slice, while others wait */
    uint64_t allowed_ns; /* by its limit; UINT64_MAX: it has none */
    uint32_t sequence;
    bool is_preemptive;
    bool has; /* the worker may submit */
    bool others_wait;
    bool is_timed; /* its turn has an end: others wait for it, or it has a limit */
    struct fgw_next next;
};

struct fgw_outlook fgw_outlook_take(const struct fgw_grantee *grantee, uint64_t now_ns);
/* Looks at the slice once more: it may have been renewed. Others wait. */
void fgw_outlook_look_at_slice(struct fgw_outlook *outlook);
/* It is true when no other vGPU that waits stands before its own. */
bool fgw_outlook_is_first(struct fgw_outlook *outlook);
/* It is true when the next one, by its last turn, will use most of its slice. */
bool fgw_outlook_next_stays(struct fgw_outlook *outlook);
/* It is true when the next one did not wait yet when this worker's turn was `late_ns` old, and stands before its own,
 * even if it had been charged for `owed_ns` more. */
bool fgw_outlook_has_newcomer(struct fgw_outlook *outlook, uint64_t late_ns, uint64_t owed_ns);
/* It is true when the next one is urgent, this worker's vGPU is not, and the two may not use the device together. */
bool fgw_outlook_next_is_urgent(struct fgw_outlook *outlook);
/* It is true when the next one may use the device together with this worker's vGPU. */
bool fgw_outlook_next_is_companion(struct fgw_outlook *outlook);

/* What follows is for the daemon. */

struct fgw_grant_reading {
    uint32_t holder; /* vGPU index + 1, or 0 */
    uint32_t is_closed;
    uint32_t nr_users;
    uint32_t sequence;
    uint64_t since_ns;
};

void fgw_control_grant_read(struct fgw_control *control, struct fgw_grant_reading *reading);
/* Gives a bit mask of vGPUs with a waiting worker; since_ns[vgpu], of FGW_MAX_VGPUS, is filled for those. */
uint64_t fgw_control_backlogged(struct fgw_control *control, uint64_t *since_ns);
/* Tells the same of those that would wait if their memory were on the device. */
uint64_t fgw_control_displaced(struct fgw_control *control, uint64_t *since_ns);
/* Gives all of these, and who holds the grant. */
uint64_t fgw_control_active(struct fgw_control *control);
/* cffi: end */

/* Tells whether a number in a shared word is that of a vGPU: a hostile worker can write any number there. */
static inline bool fgw_is_vgpu(uint32_t number)
{
    return number >= 1 && number <= FGW_MAX_VGPUS;
}

/* Tells whether a worker of the vGPU, which is one, is in the set. */
bool fgw_vgpu_is_among(struct fgw_control *control, uint32_t number, const struct fgw_worker_set *set);
bool fgw_vgpu_has_users(struct fgw_control *control, uint32_t number);
bool fgw_vgpu_waits(struct fgw_control *control, uint32_t number);
bool fgw_control_anybody_waits(struct fgw_control *control);
/* Tells how old the turn is that `word` tells of. Its start is written after the hand-over, by whoever looks first:
 * whoever handed over may have died. */
uint64_t fgw_grant_elapsed_ns(struct fgw_control *control, uint64_t word, uint64_t now_ns);
/* Chooses who is next of those that wait. `other_than` is left out: FGW_NOBODY for none. */
uint32_t fgw_grant_choose(struct fgw_control *control, uint32_t other_than);

/* Tells how it stands, never by parts of two standings: see layout.h. */
struct fgw_standing fgw_vgpu_standing(const struct fgw_control *control, uint32_t index);
/* Tells for how long it kept the grant from others without using the GPU, unused grants with it. */
uint64_t fgw_vgpu_held_ns(const struct fgw_control *control, uint32_t index);

#endif
