/* A worker whose vGPU changes its Gpu: see page/motion.h. */
#ifndef BACKEND_HOST_STAND_H
#define BACKEND_HOST_STAND_H

#include "loop/state.h"
#include "page/motion.h"

/* It stands: nothing of the device library may be called. */
static inline bool fgw_stands(const struct fgw_worker *worker)
{
    return fgw_motion(&worker->grantee) == FGW_MOTION_STAND &&
           atomic_load_explicit(&worker->slot->stage, memory_order_relaxed) == FGW_STAGE_STANDS;
}

/* Says how far the worker is; it may stand from then on. `is_settled`: nothing of the client's is in flight. */
void fgw_stand_look(struct fgw_worker *worker, bool is_settled);
/* A moment of standing: goes by another page if the daemon has sent one. */
void fgw_stand_still(struct fgw_worker *worker);

#endif
