/*
 * Taking this worker's own work off the device, and bringing it back: for kernels that outlive their turn and cannot go
 * in parts. See backend_host/channels for how, turn.c for whose turn it is.
 *
 * At the end of its turn such work is withdrawn when the next one will use all of its own, judging by its last. Beside
 * such work it might have the device at once, or not for a millisecond, and nobody could tell who is to pay
 * (docs/lab/withdrawal.md). Where the next one may want the device for a moment only, the work runs on beside it, and
 * is withdrawn when that uses the device for longer. What bringing it back takes is charged to nobody.
 *
 * While it is off the worker waits for its turn like all whose work is not on the device, and makes no call that might
 * wait for what stands still.
 *
 * Wrong when the driver has changed its mind: an answer that is not as wished ends it for this worker.
 */
#ifndef BACKEND_HOST_WITHDRAW_H
#define BACKEND_HOST_WITHDRAW_H

#include "turn/state.h"

/* Finds out whether there is a way. */
void fgw_withdraw_init(struct fgw_worker *worker);
/* A worker with the grant, at the end of a turn, withdraws what would be in the way of the next one, if that is known
 * to want the device for long. False: nothing is, or cannot be. */
bool fgw_withdraw_for_next(struct fgw_worker *worker, uint64_t now_ns);
/* A worker without the grant withdraws what is in the way of its holder. False: nothing is. */
bool fgw_withdraw_if_in_the_way(struct fgw_worker *worker, uint64_t now_ns);
/* While it is off: brings it back when its turn has come. */
void fgw_withdrawn_poll(struct fgw_worker *worker, uint64_t now_ns);
/* Brings it back. When the driver does not let it go on, the worker ends. */
void fgw_withdraw_end(struct fgw_worker *worker);

#endif
