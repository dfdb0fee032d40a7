/*
 * Room on the device for linear memory, where vGPUs may allocate more than there is. The daemon says how much of its
 * memory each worker may have there, its target; what is beyond lies in the host's memory, and a worker submits nothing
 * until all of its memory is back. Targets never sum to more than the capacity: the daemon raises one only when others
 * have gone down.
 *
 * A vGPU that is suspended has no target: all of its memory is to leave, whether or not there is room. A worker whose
 * client calls comes back from that suspension by itself, and says so; the next one is another number. Nor has one
 * that is to change its Gpu (motion.h), until it has.
 *
 * What a worker allocates it counts in its vGPU's account, which all may read: so the sum has a bound that needs no
 * daemon. Each of those that ask for the last bytes at once may be refused, but never are all served. That is linear
 * memory and what is placed: memory that its client allocates and that stays on the device. What the driver takes for
 * contexts and modules is in no such sum. What several workers of a vGPU have is in it once (shares.h).
 *
 * Wrong when: a worker that was taken over counts too little, or takes what is not its own. Others find less room than
 * they were promised, and wait: as long as the daemon lets it (pager.py). One that counts too much is held to have all
 * that one worker may.
 */
#ifndef BACKEND_HOST_ROOM_H
#define BACKEND_HOST_ROOM_H

#include "page/grantee.h"
#include "page/motion.h"

/* Tells whether more may be allocated than there is room for. */
static inline bool fgw_room_is_short(const struct fgw_grantee *grantee)
{
    const struct fgw_decided *decided = grantee->control->decided;
    return atomic_load_explicit(&decided->allocatable_bytes, memory_order_relaxed) >
           atomic_load_explicit(&decided->capacity_bytes, memory_order_relaxed);
}

/* Tells whether more is allocated than there is room for. */
bool fgw_room_is_crowded(const struct fgw_grantee *grantee);

static inline bool fgw_room_is_suspended(const struct fgw_grantee *grantee)
{
    const uint32_t suspension = atomic_load_explicit(&grantee->decided->suspension, memory_order_relaxed);
    return suspension % 2 != 0 && atomic_load_explicit(&grantee->slot->returned, memory_order_relaxed) != suspension;
}

/* Its client calls: this suspension is over for it. A new client begins so. */
static inline void fgw_room_return(const struct fgw_grantee *grantee)
{
    const uint32_t suspension = atomic_load_explicit(&grantee->decided->suspension, memory_order_relaxed);
    atomic_store_explicit(&grantee->slot->returned, suspension, memory_order_relaxed);
}

/* Tells how much of its memory may be on the device now. */
static inline uint64_t fgw_room_target_bytes(const struct fgw_grantee *grantee)
{
    if (fgw_room_is_suspended(grantee) || fgw_motion(grantee) == FGW_MOTION_STAND) {
        return 0;
    }
    const struct fgw_decided_worker *worker = &grantee->control->decided->workers[grantee->slot_index];
    return fgw_room_is_short(grantee) ? atomic_load(&worker->target_bytes) : UINT64_MAX;
}

/* cffi: begin */
/* Counts linear memory that is allocated: false, and nothing counted, when it is more than the device may have of one
 * worker beside what others have for good, or of all. `share`: the name of what others of the vGPU may have, too
 * (shares.h), or 0. */
bool fgw_room_allocate(struct fgw_grantee *grantee, uint64_t bytes, uint64_t share);
void fgw_room_deallocate(struct fgw_grantee *grantee, uint64_t bytes);
/* Counts what is placed: false, and nothing counted, when it is more than the device may have of one worker, or of all.
 */
bool fgw_room_place(struct fgw_grantee *grantee, uint64_t bytes);
void fgw_room_unplace(struct fgw_grantee *grantee, uint64_t bytes);
/* Tells whether so much could be placed now. */
bool fgw_room_may_place(struct fgw_grantee *grantee, uint64_t bytes);
/* Counts what is placed already, however much there may be. */
void fgw_room_count_placed(struct fgw_grantee *grantee, uint64_t bytes);
/* Linear memory that is on the device is placed from now on. */
void fgw_room_stay(struct fgw_grantee *grantee, uint64_t bytes);
/* Tells how much more could be allocated now, and the most that could be; false: that is the driver's to tell. */
bool fgw_room_free(const struct fgw_grantee *grantee, uint64_t *free_bytes, uint64_t *most_bytes);
/* Counts what is to come onto the device: false, and nothing counted, when that is beyond the target. */
bool fgw_room_claim(struct fgw_grantee *grantee, uint64_t bytes);
/* Counts what is there already, whatever the target. */
void fgw_room_hold(struct fgw_grantee *grantee, uint64_t bytes);
void fgw_room_leave(struct fgw_grantee *grantee, uint64_t bytes);
/* Counts what else the device has given, or has back, or is to give as soon as others have made room. */
void fgw_room_fix(struct fgw_grantee *grantee, uint64_t bytes);
void fgw_room_unfix(struct fgw_grantee *grantee, uint64_t bytes);
/* Tells whether so much more may stay on the device: then, too, each program has room there for all of its memory, in
 * its turn. */
bool fgw_room_is_spare(const struct fgw_grantee *grantee, uint64_t bytes);
/* Tells the daemon how many bytes the driver had no room for, though the target allows them; 0: it has room. */
void fgw_room_refuse(struct fgw_grantee *grantee, uint64_t bytes);
/* Tells the daemon that the worker waits for its memory since then, or 0: no more. */
void fgw_room_await(struct fgw_grantee *grantee, uint64_t since_ns);
/* Of the daemon: */
struct fgw_room_reading {
    uint32_t slot;
    uint32_t vgpu;
    uint32_t keeps;        /* enum fgw_keeps, as the worker says */
    uint32_t is_suspended; /* it is to have nothing on the device until its client calls */
    uint32_t wants;        /* it has a turn, or waits for one, or for its memory */
    uint64_t allocated_bytes;
    uint64_t resident_bytes;
    uint64_t other_bytes; /* what else it takes of the device */
    uint64_t target_bytes;
    uint64_t refused_bytes; /* the driver has no room for these */
    uint64_t displaced_since_ns;
};

void fgw_control_set_capacity(struct fgw_control *control, uint64_t capacity_bytes, uint64_t allocatable_bytes);
void fgw_control_set_target(struct fgw_control *control, uint32_t slot, uint64_t target_bytes);
void fgw_control_set_withheld(struct fgw_control *control, uint32_t slot, uint64_t withheld_bytes);
void fgw_control_set_spare(struct fgw_control *control, uint64_t spare_bytes);
/* Tells how much a vGPU's workers count that others of them count, too, as they say: memory that they share. */
uint64_t fgw_control_counted_again(const struct fgw_control *control, uint32_t index);
/* Suspends the vGPU, once more if its workers came back, or has those come back that have not. */
void fgw_control_set_suspended(struct fgw_control *control, uint32_t index, bool is_suspended);
/* Fills readings of FGW_MAX_WORKERS, of those that serve a client; gives their number. */
uint32_t fgw_control_rooms(struct fgw_control *control, struct fgw_room_reading *readings);
/* cffi: end */

/* Tells whether the vGPU's worker in this slot is suspended. */
bool fgw_vgpu_is_suspended(const struct fgw_control *control, uint32_t index, uint32_t slot);
/* Tells whether a worker of the vGPU waits for its memory, and since when one does. */
bool fgw_vgpu_is_displaced(const struct fgw_control *control, uint32_t index, uint64_t *since_ns);

#endif
