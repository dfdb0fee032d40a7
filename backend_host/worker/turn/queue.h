/* Bounds how much a worker has in the device's queue: see queue.c. */
#ifndef BACKEND_HOST_QUEUE_H
#define BACKEND_HOST_QUEUE_H

#include "client/state.h"

/* Tells whether one more submission fits into the driver's queue. */
bool fgw_queue_has_room(const struct fgw_worker *worker);
/* Tells how many may be in flight so that they end with the slice, of which so much is left; and while nobody waits.
 * Both set how many of them share a mark. */
uint32_t fgw_queue_most(struct fgw_worker *worker, uint64_t left_ns);
uint32_t fgw_queue_most_unwaited(struct fgw_worker *worker);
/* Tells how many last so long, one at least, and has the end of each be heard of. */
uint32_t fgw_queue_most_within(struct fgw_worker *worker, uint64_t time_ns);
/* So much is queued that it matters in which streams: then the stream is to be asked too. */
bool fgw_queue_is_deep(const struct fgw_worker *worker);
bool fgw_queue_fits_stream(struct fgw_worker *worker, const struct fgw_stream *stream);

#endif
