#include "track/behind.h"

#include <string.h>

#include "client/handles.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "page/bell.h"
#include "track/running.h"
#include "track/state.h"
#include "track/sync.h"

/* Something may stand behind this one. */
static struct fgw_behind *find(struct fgw_worker *worker, uint64_t number)
{
    for (uint32_t i = 0; number != 0 && i < FGW_MAX_BEHIND; i++) {
        struct fgw_behind *behind = &worker->track->behind.items[i];
        if (behind->number == number) {
            return behind;
        }
    }
    return NULL;
}

/* Tells what the next thing in the stream will wait for. */
static uint64_t host_before(struct fgw_worker *worker, const struct fgw_stream *stream)
{
    const struct fgw_stream *legacy = &stream->context->legacy;
    uint64_t number = stream->behind_host;
    if (stream != legacy) {
        return legacy->behind_host > number && fgw_stream_is_blocking(worker, stream) ? legacy->behind_host : number;
    }
    for (const struct fgw_stream *other = stream->context->streams; other; other = other->next) {
        if (other->behind_host > number && !other->is_gone && fgw_stream_is_blocking(worker, other)) {
            number = other->behind_host;
        }
    }
    return number;
}

void fgw_behind_put_behind(struct fgw_worker *worker, struct fgw_stream *stream, uint64_t number)
{
    if (number == stream->behind_host) {
        return;
    }
    if (stream->nr_unmarked != 0) {
        fgw_stream_mark(worker, stream); /* what was submitted before is not behind it */
    }
    if (stream->nr_unmarked == 0) {
        stream->behind_host = number;
    }
}

void fgw_behind_before(struct fgw_worker *worker, const struct fgw_service *service, struct fgw_stream *stream)
{
    if (worker->track->behind.nr == 0 || fgw_stream_is_captured(worker, stream)) {
        return;
    }
    if (service->cost == FGV_COST_NONE) {
        if (stream->nr_unmarked != 0) {
            fgw_stream_mark(worker, stream); /* its end is seen for itself, whatever the call adds behind it */
        }
        return;
    }
    fgw_behind_put_behind(worker, stream, host_before(worker, stream));
    struct fgw_behind *behind = find(worker, stream->behind_host);
    if (behind) {
        atomic_store(&behind->is_followed, true);
    }
}

void fgw_behind_after(struct fgw_worker *worker, const struct fgw_service *service, const struct fgw_request *request,
                      struct fgw_stream *stream)
{
    uint64_t number;
    if (worker->track->behind.nr == 0 || service->event_offset == FGW_NO_HANDLE) {
        return;
    }
    memcpy(&number, (const uint8_t *)request->fixed + service->event_offset, sizeof(number));
    if (service->number != FGV_CALL_cuStreamWaitEvent) {
        fgw_handle_put_behind(worker, FGV_HANDLE_EVENT, number, host_before(worker, stream));
        return;
    }
    const uint64_t behind_host = fgw_handle_find(worker, FGV_HANDLE_EVENT, number).behind_host;
    if (behind_host > stream->behind_host && find(worker, behind_host)) {
        fgw_behind_put_behind(worker, stream, behind_host);
    }
}

struct fgw_behind *fgw_behind_open(struct fgw_worker *worker, uint32_t index)
{
    struct fgw_all_behind *all = &worker->track->behind;
    struct fgw_behind *behind = &all->items[index];
    behind->number = ++all->last_number;
    atomic_store(&behind->is_followed, false);
    all->nr++;
    return behind;
}

static void let_go(struct fgw_track *track, struct fgw_stream *stream, uint64_t number)
{
    for (struct fgw_mark *mark = stream->first_mark; mark; mark = mark->next) {
        if (mark->behind_host == number) {
            mark->behind_host = 0;
            track->nr_behind_hosts -= mark->nr_submissions;
        }
    }
    if (stream->behind_host == number) {
        stream->behind_host = 0;
        track->nr_behind_hosts -= stream->nr_unmarked;
    }
}

void fgw_behind_release(struct fgw_worker *worker, struct fgw_behind *behind)
{
    struct fgw_track *track = worker->track;
    const uint32_t nr_behind_hosts = track->nr_behind_hosts;
    const bool was_empty = track->nr_unfinished == 0;
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS && behind->number != 0; i++) {
        struct fgw_stream *stream = worker->contexts[i] ? worker->contexts[i]->streams : NULL;
        for (; stream; stream = stream->next) {
            let_go(track, stream, behind->number);
        }
    }
    behind->number = 0;
    track->nr_unfinished += nr_behind_hosts - track->nr_behind_hosts;
    if (fgw_nr_running(worker) != 0) {
        track->listener->started(worker, was_empty, fgw_clock_ns());
    }
}

void fgw_behind_close(struct fgw_worker *worker, struct fgw_behind *behind)
{
    if (behind->number != 0) {
        fgw_behind_release(worker, behind);
    }
    worker->track->behind.nr--;
}

void fgw_behind_note_node(struct fgw_worker *worker)
{
    worker->track->behind.has_nodes = true;
}
