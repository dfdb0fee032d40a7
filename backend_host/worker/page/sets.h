/* Sets of workers on the control page: a bit for each slot, set and cleared by its owner, and by whoever repairs what a
 * dead one left. */
#ifndef BACKEND_HOST_SETS_H
#define BACKEND_HOST_SETS_H

#include "page/layout.h"

static inline void fgw_set_add(struct fgw_worker_set *set, uint32_t slot)
{
    atomic_fetch_or(&set->words[slot / 64], UINT64_C(1) << (slot % 64));
}

static inline void fgw_set_remove(struct fgw_worker_set *set, uint32_t slot)
{
    atomic_fetch_and(&set->words[slot / 64], ~(UINT64_C(1) << (slot % 64)));
}

static inline bool fgw_set_has(const struct fgw_worker_set *set, uint32_t slot)
{
    return (atomic_load(&set->words[slot / 64]) >> (slot % 64)) & 1u;
}

static inline bool fgw_set_has_common(const struct fgw_worker_set *a, const struct fgw_worker_set *b)
{
    for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
        if (atomic_load(&a->words[i]) & atomic_load(&b->words[i])) {
            return true;
        }
    }
    return false;
}

/* Counts those that are in both. */
static inline uint32_t fgw_set_nr_common(const struct fgw_worker_set *a, const struct fgw_worker_set *b)
{
    uint32_t nr = 0;
    for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
        nr += (uint32_t)__builtin_popcountll(atomic_load(&a->words[i]) & atomic_load(&b->words[i]));
    }
    return nr;
}

/* Tells whether the worker in this slot serves a program, and of which vGPU. */
static inline bool fgw_slot_serves(const struct fgw_control *control, uint32_t slot, uint32_t *vgpu)
{
    const struct fgw_decided_worker *worker = &control->decided->workers[slot];
    *vgpu = atomic_load(&worker->vgpu);
    return atomic_load(&worker->state) == FGW_WORKER_SERVING && *vgpu < FGW_MAX_VGPUS;
}

#endif
