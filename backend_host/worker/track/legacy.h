/*
 * The order of the legacy default stream: what is put into it begins behind all that is in the blocking streams of its
 * context, and what is put into one of those begins behind all that is in it. Numbers of one stream do not tell that. A
 * mark does, which the driver puts behind both.
 */
#ifndef BACKEND_HOST_LEGACY_H
#define BACKEND_HOST_LEGACY_H

#include "track/state.h"

/* Where what comes into the stream now would wait for others by that order, and no mark of it stands behind their work,
 * it is touched: the next mark does. */
void fgw_legacy_involve(struct fgw_worker *worker, struct fgw_stream *stream);

#endif
