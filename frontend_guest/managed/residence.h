/*
 * Where managed memory lies that is to stay with the CPU (preferred location): in the region's heap, whose pages are
 * then at the area's address in the program, in the worker and on the device. Nothing of it is copied any more. Program
 * and kernels reach it at the same time, so that they can exchange words of it while a kernel runs, and the device
 * reaches it over the bus.
 *
 * An allocation of its own area lies there if all of it is to; where allocations share an area, if some of them is. No
 * finer: the device maps 2 MiB at once, and its driver copies nothing that is in part memory of the device.
 *
 * Wrong when: a system call is given memory of an area while that goes back to the device: it fails.
 */
#ifndef FRONTEND_GUEST_RESIDENCE_H
#define FRONTEND_GUEST_RESIDENCE_H

struct fgv_area;

/* What was said of it has changed, or what is allocated in it: it moves if it should. Not while work is captured.
 * Between fgv_granules_enter and _leave; the calling thread has the area's context then. */
void fgv_residence_review(struct fgv_area *area);

#endif
