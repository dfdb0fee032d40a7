/* Streams and events of the client, saved and made again: see stream.c, event.c. */
#ifndef BACKEND_HOST_CALLS_STREAM_H
#define BACKEND_HOST_CALLS_STREAM_H

#include "client/kind.h"
#include "client/service.h"

const char *fgw_stream_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver);
const char *fgw_stream_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved);

const char *fgw_event_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver);
const char *fgw_event_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved);

/* stream_value.c: whether all operations are of a kind that is carried, and there is one. */
bool fgw_operations_are_known(const CUstreamBatchMemOpParams *operations, uint32_t nr);
/* Their addresses become those where variables are now. */
void fgw_operations_lead(struct fgw_worker *worker, CUstreamBatchMemOpParams *operations, uint32_t nr);
/* Whether a value that a stream is to wait for, or to write, lies in memory that is not on the device. */
bool fgw_value_is_out(struct fgw_worker *worker, const struct fgw_request *request);

#endif
