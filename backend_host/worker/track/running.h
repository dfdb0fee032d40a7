/* Tells how much of what was submitted may be running. */
#ifndef BACKEND_HOST_RUNNING_H
#define BACKEND_HOST_RUNNING_H

#include "track/state.h"

/* Tells how many submissions may be running: not those in streams that are gated. */
uint32_t fgw_nr_running(const struct fgw_worker *worker);
/* Submissions to the stream that have not ended, without what a host function holds. */
uint32_t fgw_nr_in_stream(const struct fgw_stream *stream);

#endif
