/*
 * When kernels were on the device, for a trace: an event before each launch and one behind it, FAIRGV_TIMELINE=1 beside
 * FAIRGV_TRACE. What has ended is written to the trace now and then, before a context is destroyed, and when the
 * program ends.
 *
 * Not timed: launches while anything is captured, graphs, and what has not ended when the program does.
 * Wrong when: a float of milliseconds is too coarse. It tells 0.5 us at best, and 0.25 us more with each four seconds.
 */
#ifndef FRONTEND_GUEST_TIMELINE_H
#define FRONTEND_GUEST_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/thread.h"
#include "cuda_api/types.h"

extern bool fgv_timeline_is_on; /* set before main */

/* A launch while it is made. */
struct fgv_timed {
    CUevent begun;
    uint64_t *outer;
};

/* Before a launch, and behind it, by one thread at a time. `name` of the function; NULL: the launch has failed. */
void fgv_timeline_begin(struct fgv_timed *timed, CUstream stream);
void fgv_timeline_end(struct fgv_timed *timed, CUstream stream, const char *name);
/* Writes down what has ended, and forgets the rest of the context, which is about to be destroyed. */
void fgv_timeline_end_context(const struct fgv_context *context);

#endif
