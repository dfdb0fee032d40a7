#include "track/legacy.h"

#include "client/stream.h"
#include "track/sync.h"

/* Tells whether the other one has something that has not ended, and that no mark of this one stands behind. */
static bool is_open(const struct fgw_stream *other, const struct fgw_stream *stream)
{
    return other != stream && other->last_seq > stream->marked_seq && other->last_seq > other->done_seq;
}

static bool waits_for_others(struct fgw_worker *worker, const struct fgw_stream *stream)
{
    const struct fgw_context *context = stream->context;
    if (context->fault != CUDA_SUCCESS) {
        return false; /* nothing there will be heard of again */
    }
    if (stream != &context->legacy) {
        return is_open(&context->legacy, stream) && fgw_stream_is_blocking(worker, stream);
    }
    const struct fgw_stream *other = context->streams;
    while (other && !is_open(other, stream)) {
        other = other->next;
    }
    return other != NULL;
}

void fgw_legacy_involve(struct fgw_worker *worker, struct fgw_stream *stream)
{
    if (waits_for_others(worker, stream)) {
        fgw_stream_touch(worker, stream);
    }
}
