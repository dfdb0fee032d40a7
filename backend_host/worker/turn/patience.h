/*
 * How long an idle holder keeps the grant. A program that waits for each of its kernels has nothing to submit for a
 * moment after each, and would lose the rest of its turn every time. So an idle holder keeps the grant for about as
 * long as its pauses usually last, provided that they are shorter than a switch to another vGPU and back, or it still
 * stands before all who wait, or has only just got it. What it holds without use it pays for. One that pauses for
 * longer than it works is not waited for, nor one that pauses for much of a turn. scheduler/patience.py is the same
 * rule for the simulator.
 *
 * Wrong when: a program's pauses alternate between few very different lengths (habit.h).
 */
#ifndef BACKEND_HOST_PATIENCE_H
#define BACKEND_HOST_PATIENCE_H

#include "page/outlook.h"
#include "turn/state.h"

/* The device has work of this worker's since then; it has none any more. */
void fgw_patience_begin_burst(struct fgw_worker *worker, uint64_t from_ns);
void fgw_patience_end_burst(struct fgw_worker *worker, uint64_t now_ns);
/* There is work again. */
void fgw_patience_end_pause(struct fgw_worker *worker, uint64_t now_ns);
/* Until there are kernels again it is no pause. */
void fgw_patience_forget_pause(struct fgw_worker *worker);
/* A holder has nothing to submit from now on; it has something again, or leaves. */
void fgw_patience_begin_hold(struct fgw_worker *worker, uint64_t now_ns);
void fgw_patience_end_hold(struct fgw_worker *worker, bool others_wait, uint64_t now_ns);
/* cffi: begin */
/* An idle holder as it is looked at: how long its pauses are and how far from that, the burst of work before each, the
 * slice, its turn, what it has had of the slice; whether others wait, and whether it stands before all of them. */
struct fgw_patience_view {
    uint64_t pause_ns, spread_ns, burst_ns;
    uint64_t slice_ns, turn_ns, had_ns;
    bool others_wait, is_first;
};

/* Tells for how long it keeps the grant. */
uint64_t fgw_patience_ns(const struct fgw_patience_view *view);
/* cffi: end */
/* Tells whether an idle holder has kept the grant for long enough. */
bool fgw_patience_is_over(const struct fgw_worker *worker, struct fgw_outlook *outlook);

#endif
