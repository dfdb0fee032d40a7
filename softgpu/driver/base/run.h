/*
 * A run: one kernel of a space (space.h), from when it waits for the device to its end.
 *
 * Kernels of a space run beside each other, so the device's multiprocessors are shared out: each block that has begun
 * has a place on one, which takes a part of it. How many blocks of a kernel fit says how large the part is; parts of
 * different kernels add up. A block begins where most room is. Whose kernel is not low comes first, then whose kernel
 * came first; nobody takes room while one who comes before waits for it.
 *
 * Both are kept in the device's file (state.h), by locks and counts.
 *
 *     run.c      when it begins and ends       places.c   the places of its blocks       run_records.c    its record
 */
#ifndef SOFTGPU_RUN_H
#define SOFTGPU_RUN_H

#include "base/places.h"

/* Blocks until the kernel may run. So many of its blocks fit a multiprocessor; `nr_together` of them, or 0, must all
 * have places before the first begins. Any thread, without the lock. */
void sgp_run_begin(struct sgp_run *run, struct sgp_state *state, uint32_t nr_fit, uint64_t nr_together);
/* Gives back its places, too; as sgp_state_end_kernel(). */
uint32_t sgp_run_end(struct sgp_run *run, uint64_t busy_ns);

#endif
