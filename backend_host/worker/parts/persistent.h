/*
 * A launch that goes persistently: one kernel of as many blocks as fit the device, which is told to stop when the turn
 * is over and goes on by the same counter. See persistent.c.
 *
 * Where there is a split word (settings.split_address) blocks of it give way on some multiprocessors while it goes on.
 * Nobody tells the worker that the word has changed:
 *
 *     fewer blocks may be there     they go by themselves. When none is left the kernel has ended, and its worker
 *                                   wants no turn before the word leaves it a place
 *     more blocks may be there      fgw_persistent_take_back, by whoever knows that they may, each time that more may
 */
#ifndef BACKEND_HOST_PERSISTENT_H
#define BACKEND_HOST_PERSISTENT_H

#include "client/service.h"
#include "parts/launch.h"
#include "parts/state.h"

/*
 * Has the kernel that runs get blocks for all the places that its split leaves it and that it does not use: with the
 * next look at the launch, in this turn or in the next one, and not at all if there is no kernel, or no place, by then.
 * They run beside it on a lane, and the launch ends when both have. Where both streams are in use, by blocks that were
 * taken back before say, all are told to stop, and the kernel is launched anew for all places: so it is not to be
 * called again and again while somebody else's blocks keep its own from beginning. Costs two copies of a few KiB.
 */
void fgw_persistent_take_back(struct fgw_worker *worker);

/* The worker is of best effort in a space, whose split word is at this address: what the device does not take at once
 * goes persistently from now on. */
void fgw_persistent_share(struct fgw_worker *worker, uint64_t split_address);

/* Whether one is on the device. */
bool fgw_persistent_can_stop(const struct fgw_worker *worker);
/* Tells it to stop, if there is one. */
void fgw_persistent_stop(struct fgw_worker *worker);
/* The same unless it was told before; since when it has been told to, 0: there is none. As struct fgw_turn_above has
 * it. */
uint64_t fgw_persistent_stop_once(struct fgw_worker *worker);
/* Tells it to stop when the turn is over, and has it take back what the critical vGPU of its space no more asks for. */
void fgw_persistent_poll(struct fgw_worker *worker);

/* Whether more blocks of it may be submitted now. */
bool fgw_persistent_has_room(struct fgw_worker *worker);
/* Submits them: the kernel, or blocks beside it. `launch` is as it was read. */
CUresult fgw_persistent_submit(struct fgw_worker *worker, const struct fgw_service *service, struct fgw_stream *stream,
                               struct fgw_launch *launch);
/* Nothing of it is on the device any more: how far it came of so many blocks. */
CUresult fgw_persistent_ended(struct fgw_worker *worker, uint64_t nr_blocks);
/* Blocks of this function that fit a multiprocessor, and how many of those there are; 0 where the driver says neither.
 */
uint32_t fgw_resident_each(const struct fgw_worker *worker, const CUlaunchConfig *config, CUfunction function);
uint32_t fgw_multiprocessors(const struct fgw_worker *worker);

#endif
