/*
 * The gate of a space, at which work of best effort waits that cannot give way, while rounds of the critical vGPU last.
 *
 * What goes persistently makes room between two of its blocks (parts/persistent.h). What goes whole has no such moment:
 * a kernel without PTX, one whose variant is refused, a graph. So as long as a round asks for room, and for half a
 * millisecond behind it (round.h), such work does not begin, unless it has no more blocks than the split leaves
 * multiprocessors. Where rounds were lately no more of it is queued than the device does in 100 us, as nothing takes
 * back what is queued.
 *
 * Nobody waits here for good. While somebody does, the critical vGPU's time counts as ahead of its turns, and beyond
 * its bound its rounds ask for nothing; and no launch waits for more than a second.
 *
 * A worker that waits here wants no turn. It sleeps by the bell of its vGPU, which is rung when rounds ask for nothing
 * any more. It looks ten times a second besides.
 *
 * Wrong when: such a kernel is long. It may have begun before the round, which then has it beside it to its end.
 */
#ifndef BACKEND_HOST_SPACE_GATE_H
#define BACKEND_HOST_SPACE_GATE_H

#include "turn/state.h"

#define FGW_BLOCKS_UNKNOWN UINT64_MAX

/* Tells whether what is about to be submitted, which cannot give way, has to wait. It is asked again before it goes. */
bool fgw_space_gate_holds(struct fgw_worker *worker, uint64_t nr_blocks);
/* Tells whether what had to wait has to still. That asks for no turn. */
bool fgw_space_gate_is_shut(struct fgw_worker *worker);
/* What waited goes, or never will. */
void fgw_space_gate_end(struct fgw_worker *worker);
/* Tells whether the worker waits for a bell. */
bool fgw_space_gate_is_awaited(const struct fgw_worker *worker);
/* Tells whether that has been rung, or will not be: to be asked between taking the bell and sleeping. */
bool fgw_space_gate_is_open(const struct fgw_worker *worker);

#endif
