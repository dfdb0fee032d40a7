/* A worker whose vGPU changes its Gpu, or whose contexts leave the device: see page/motion.h and page/sleep.h. */
#ifndef BACKEND_HOST_STAND_H
#define BACKEND_HOST_STAND_H

#include "loop/state.h"
#include "page/motion.h"
#include "page/sleep.h"
#include "replay/replay.h"

/* It stands: nothing of the device library may be called. */
static inline bool fgw_stands(const struct fgw_worker *worker)
{
    const enum fgw_motion motion = fgw_motion(&worker->grantee);
    return (motion == FGW_MOTION_STAND || motion == FGW_MOTION_CHANGE || fgw_sleep_is_wanted(&worker->grantee)) &&
           atomic_load_explicit(&worker->slot->stage, memory_order_relaxed) == FGW_STAGE_STANDS;
}

/* Shows what binds the program to its device, by what it has and by what was tried. */
void fgw_stand_tell_bound(struct fgw_worker *worker);
/* Says how far the worker is; it may stand from then on. `is_settled`: nothing of the client's is in flight. */
void fgw_stand_look(struct fgw_worker *worker, bool is_settled);
/* It does not stand: what it did for that is undone, before anything else is called. */
static inline void fgw_stand_no_more(struct fgw_worker *worker)
{
    if (atomic_load_explicit(&worker->slot->stage, memory_order_relaxed) == FGW_STAGE_STANDS) {
        fgw_replay_undo(worker);
    }
}
/* A moment of standing: goes by another page if the daemon has sent one, and sees whether the client of a suspended
 * worker calls. */
void fgw_stand_still(struct fgw_worker *worker);

#endif
