/*
 * When what is on the device should end, by how long submissions took so far. A worker looks at the device more closely
 * around that time (rest.c), and the grant goes on a moment before it (turn.c).
 *
 * Copies are kept apart: kernels among copies of another length would be expected too early or too late by far, and the
 * worker be asleep, or watch, at the wrong moment. Programs that stage their data launch kernels in rows between copies
 * that are made one by one.
 *
 * Wrong when: kernels of one program differ by orders of magnitude. The means lag behind.
 */
#ifndef BACKEND_HOST_DUE_H
#define BACKEND_HOST_DUE_H

#include "track/state.h"

static inline uint64_t fgw_mean_with(uint64_t mean_ns, uint64_t sample_ns)
{
    return mean_ns == 0 ? sample_ns : (mean_ns * 3 + sample_ns) / 4;
}

/* So many submissions have ended since `last_finish_ns`, `nr_copies` of them copies. */
void fgw_due_note(struct fgw_worker *worker, uint32_t nr, uint32_t nr_copies, uint64_t now_ns);
/* They tell when the next mark should be done, and all that runs; 0: unknown. */
uint64_t fgw_due_mark_ns(const struct fgw_worker *worker);
uint64_t fgw_due_end_ns(const struct fgw_worker *worker);

#endif
