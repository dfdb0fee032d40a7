/*
 * The contents of an area's granules: given to the program, sent to the device, taken from the program. When that is
 * due is for granules.c to know, which has the books while it calls here.
 */
#ifndef FRONTEND_GUEST_CONTENTS_H
#define FRONTEND_GUEST_CONTENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "managed/area.h"

/* The calling thread's calls are in the area's context from now on. */
void fgv_contents_use_context(const struct fgv_area *area);
/* Gives granules to the program, to be read or also written, with what the device has in them. False: the kernel has no
 * mapping left for one piece of them. */
bool fgv_contents_give(struct fgv_area *area, uint64_t first, uint64_t end, enum fgv_granule right);
/* Sends what the program has written, and may read still; true: there was something. */
bool fgv_contents_send(struct fgv_area *area);
/* Takes all that the program was given. */
void fgv_contents_take(struct fgv_area *area);
/* Puts at `to`, for all of the area, what the device has and the program does not; and then what the program has, which
 * has nothing any more afterwards. What it may touch it may write to in between. */
void fgv_contents_fetch_to(const struct fgv_area *area, uint8_t *to);
void fgv_contents_move_to(struct fgv_area *area, uint8_t *to);

#endif
