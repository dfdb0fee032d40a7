/*
 * What a worker's vGPU is charged for its work. GPU time is the time with work in flight, less what it takes to get
 * work to an idle device and to hear of its end (latency.h). It is charged when work ends and, for long kernels, as
 * they go.
 *
 * Wrong when: the end of what is left for another's turn is expected wrongly. It was paid for as short, and is charged
 * as it goes only FGW_TAIL_NS later.
 */
#ifndef BACKEND_HOST_CHARGE_H
#define BACKEND_HOST_CHARGE_H

#include "turn/state.h"

/* What is left when the grant goes on may be done late by that: the device gives the next one time slices of its own
 * first, of 2 ms each. */
#define FGW_TAIL_NS UINT64_C(5000000)

/* They are as struct fgw_track_listener has `started` and `finished`. */
void fgw_charge_started(struct fgw_worker *worker, bool was_empty, uint64_t begun_ns);
void fgw_charge_finished(struct fgw_worker *worker, uint32_t nr, uint64_t now_ns);
/* Charges what is on the device, up to now; `if_due`: when that has not been done for a while. */
void fgw_charge_so_far(struct fgw_worker *worker, uint64_t now_ns);
void fgw_charge_if_due(struct fgw_worker *worker, uint64_t now_ns);
/* What was on the device is gone, and nobody saw its end: it went with its context, say. */
void fgw_charge_lost(struct fgw_worker *worker);
/* So much is left to end in another's turn, and is paid for now. */
void fgw_charge_tail(struct fgw_worker *worker, uint64_t left_ns, uint64_t now_ns);
/* The tail is in a turn again: it is charged as it goes. */
void fgw_charge_end_tail(struct fgw_worker *worker, uint64_t now_ns);
/* The work that was there is off the device from `off_ns` on, or is back. It still ran for some of the time since it
 * was asked off, and nobody can tell how much: half is charged. */
void fgw_charge_off(struct fgw_worker *worker, uint64_t asked_ns, uint64_t off_ns);
void fgw_charge_back(struct fgw_worker *worker, uint64_t now_ns);
/* The client has ended, maybe with work in flight whose end nobody will see: from the one to the other, when the device
 * has let go of it, is charged. */
void fgw_charge_end_begin(struct fgw_worker *worker);
void fgw_charge_end(struct fgw_worker *worker);

#endif
