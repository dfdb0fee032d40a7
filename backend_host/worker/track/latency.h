/*
 * What it takes to get work to an idle device and to hear of its end. It is no use of the device, and a program that
 * waits for each of its kernels would pay for it every time: some 10 us, be the kernel of 20 or of 200.
 *
 * It is measured where that is possible: what is submitted from the moment in which the device is idle until it is idle
 * again is put between two events of the device's own clock, for the first few times and for one in many after that.
 * What passed here, less what passed there, is the latency. The device comes to the first event at once and then waits
 * for work, so the time that the driver takes for the first call is on both clocks, and is taken off the device's. The
 * second event is recorded anew with each mark (sync.c), so the last of them is behind everything.
 *
 * After a rest both take longer, for a few us on a GPU and for tens on softgpu: caches are cold, and threads asleep.
 * Where vGPUs take turns that is what each turn begins with, and on a GPU the device's own switch to this one is in it,
 * since it comes to the first event behind that: it is nobody's use of the device. So it is measured by itself, or
 * those that have more and shorter turns would pay more for the same.
 *
 * It must be measured for all kinds of programs: were it only when a launch happens to be alone, those that launch
 * several or copy first would go by a stray sample or two, and some of them be charged less than others for the same.
 *
 * Wrong when: another process uses the device meanwhile. The kernel then takes longer on both clocks alike; only a
 * switch that falls between the kernel and the second event is missed. And for what never runs dry within so many marks
 * nothing is measured: it pays for the switch.
 */
#ifndef BACKEND_HOST_LATENCY_H
#define BACKEND_HOST_LATENCY_H

#include "track/state.h"

/* They are called right before something is submitted, and right behind; most of the time they do nothing. */
void fgw_latency_begin(struct fgw_worker *worker, const struct fgw_stream *stream);
void fgw_latency_submitted(struct fgw_worker *worker, CUresult result);
/* Tells the latency of what an idle device gets at this moment; 0 while nothing is known. */
uint64_t fgw_latency_ns(const struct fgw_worker *worker, uint64_t now_ns);
/* The stream is about to be marked, in its context. */
void fgw_latency_mark(struct fgw_worker *worker, const struct fgw_stream *stream);
/* The device is idle again. */
void fgw_latency_finish(struct fgw_worker *worker, uint64_t now_ns);
void fgw_latency_drop_context(struct fgw_worker *worker, const struct fgw_context *context);

#endif
