/* How much a worker has in the device's queue: see queue.c. */
#ifndef BACKEND_HOST_QUEUE_H
#define BACKEND_HOST_QUEUE_H

#include "client/state.h"

/* Whether one more submission fits into the driver's queue. */
bool fgv_queue_has_room(const struct fgv_worker *worker);
/* How many may be in flight so that they end with the slice, of which so much is left; and while nobody waits. Both set
 * how many of them share a mark. */
uint32_t fgv_queue_most(struct fgv_worker *worker, uint64_t left_ns);
uint32_t fgv_queue_most_unwaited(struct fgv_worker *worker);
/* So much is queued that it matters in which streams: then the stream is to be asked too. */
bool fgv_queue_is_deep(const struct fgv_worker *worker);
bool fgv_queue_fits_stream(struct fgv_worker *worker, const struct fgv_stream *stream);

#endif
