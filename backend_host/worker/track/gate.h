/* Streams that are held up by a value: see gate.c. */
#ifndef BACKEND_HOST_GATE_H
#define BACKEND_HOST_GATE_H

#include "client/service.h"
#include "track/state.h"

/* No more may be queued before a stream that waits for a value goes on. */
bool fgv_gate_is_full(const struct fgv_worker *worker);
/* Around a call after which the stream may be held up, and before a submission. */
void fgv_gate_prepare(struct fgv_worker *worker, struct fgv_stream *stream, uint16_t call);
void fgv_gate_close(struct fgv_worker *worker, struct fgv_stream *stream, const struct fgv_request *request);
void fgv_gate_submit(struct fgv_worker *worker, struct fgv_stream *stream);

#endif
