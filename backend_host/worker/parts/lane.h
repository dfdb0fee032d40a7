/*
 * A second stream for the parts of a launch in boxes. The last blocks of a kernel leave multiprocessors idle, and what
 * follows in its stream waits for all of them; blocks of one grid owe each other no order, so every other part goes on
 * a stream of the worker's own, a lane, and the device fills one part's ragged end with the next one's first blocks.
 *
 * The lane begins behind all that stands in front of the launch, and its last part is waited for by the guest's stream
 * before anything else comes there: seen from anywhere else the launch is one piece of work of the guest's stream. That
 * holds for the legacy default stream, too: for CUDA a record and a wait there, or on a stream that blocks with it, are
 * actions as launches are. Its submissions are counted, marked and charged as those of any stream.
 *
 * A context has one for each priority that its launches have. It is used for one of the guest's streams until it has
 * run dry: work of another one behind it would wait for what the program left independent.
 *
 * Wrong when: the driver puts both streams on one of the device's queues (there are 8 for a process unless
 * CUDA_DEVICE_MAX_CONNECTIONS says otherwise). Then parts follow each other as on one stream.
 */
#ifndef BACKEND_HOST_LANE_H
#define BACKEND_HOST_LANE_H

#include "client/state.h"

struct fgw_lane {
    struct fgw_lane *next; /* of the context */
    struct fgw_stream stream;
    CUevent event; /* in the guest's stream before the first part, then behind the last one here */
    int priority;
    uint64_t partner; /* the guest's number of the stream that its work belongs to */
};

/* Right before the first part on `stream`, in the current context. NULL: there is none to be had. */
struct fgw_lane *fgw_lane_fork(struct fgw_worker *worker, struct fgw_stream *stream);
/* Whether a launch on the guest's stream of this number may use it now. */
bool fgw_lane_is_free(const struct fgw_lane *lane, uint64_t partner);
/* What is put into it from now on comes behind the fork, as if it were in `stream`, which has this number. */
CUresult fgw_lane_enter(struct fgw_worker *worker, struct fgw_lane *lane, const struct fgw_stream *stream,
                        uint64_t partner);
/* What is put into `stream` from now on comes behind all that is in the lane. */
CUresult fgw_lane_join(struct fgw_worker *worker, struct fgw_lane *lane, struct fgw_stream *stream);
/* The context is about to be destroyed, and has no other streams with work any more. */
void fgw_lanes_drop(struct fgw_worker *worker, struct fgw_context *context);

#endif
