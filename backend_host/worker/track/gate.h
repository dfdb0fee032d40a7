/* Streams that are gated by a value: see gate.c. */
#ifndef BACKEND_HOST_GATE_H
#define BACKEND_HOST_GATE_H

#include "client/service.h"
#include "track/state.h"

/* No more may be queued before a stream that waits for a value goes on. */
bool fgw_gate_is_full(const struct fgw_worker *worker);
/* They stand around a call after which the stream may be gated, and before a submission. */
void fgw_gate_prepare(struct fgw_worker *worker, struct fgw_stream *stream, uint16_t call);
void fgw_gate_close(struct fgw_worker *worker, struct fgw_stream *stream, const struct fgw_request *request);
void fgw_gate_submit(struct fgw_worker *worker, struct fgw_stream *stream);

#endif
