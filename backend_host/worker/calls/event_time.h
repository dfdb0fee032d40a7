/*
 * Times of events that were recorded on another device: since the driver's events there are no more, they are kept by
 * the host's clock, until the event is recorded again. What is asked of such a one and of one that was recorded here
 * goes by an event whose time on both is known.
 */
#ifndef BACKEND_HOST_WORKER_EVENT_TIME_H
#define BACKEND_HOST_WORKER_EVENT_TIME_H

#include "client/state.h"

/* Stands in front of the driver's calls of events. */
void fgw_event_time_wrap(struct fgv_driver *driver);

/* An event of a device that is being left, and the host's time of it. */
struct fgw_event_mark {
    CUevent event; /* NULL: there is none */
    double at_ns;  /* CLOCK_MONOTONIC */
};

/* Records one in the current context, and waits until it is over. */
struct fgw_event_mark fgw_event_mark(void);
/* `now` is known to have the time of `before`, by the mark on its device. Nothing where that has none. `before` is the
 * mark then: events that were recorded one after the other are near, and the driver's answer tells nanoseconds. */
void fgw_event_time_keep(CUevent now, CUevent before, struct fgw_event_mark *mark);
/* A context goes, and nobody tells whose events these were. */
void fgw_event_time_forget(void);
/* Makes times of the current context's device known by this mark of it; the one before is the caller's. */
struct fgw_event_mark fgw_event_time_go_by(struct fgw_event_mark mark);

#endif
