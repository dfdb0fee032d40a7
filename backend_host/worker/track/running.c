#include "track/running.h"

#include "client/state.h"
#include "track/state.h"

static bool stream_is_gated(const struct fgw_stream *stream)
{
    return stream->first_mark && stream->first_mark->nr_submissions == 0;
}

/* It leaves out what stands behind a host function, or is in no turn: these are not counted among the unfinished. */
uint32_t fgw_nr_in_stream(const struct fgw_stream *stream)
{
    uint32_t nr = stream->behind_host == 0 && !stream->is_beside ? stream->nr_unmarked : 0;
    for (const struct fgw_mark *mark = stream->first_mark; mark; mark = mark->next) {
        nr += mark->behind_host == 0 && !mark->is_beside ? mark->nr_submissions : 0;
    }
    return nr;
}

uint32_t fgw_nr_running(const struct fgw_worker *worker)
{
    uint32_t nr = worker->track->nr_unfinished;
    for (const struct fgw_stream *stream = worker->track->nr_gates ? worker->track->busy : NULL; stream;
         stream = stream->next_busy) {
        nr -= stream_is_gated(stream) ? fgw_nr_in_stream(stream) : 0;
    }
    return nr;
}
