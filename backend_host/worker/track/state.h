/*
 * What was submitted, and what of it has ended: the data of this floor, and whom it tells.
 *
 * Submissions are numbered over all streams. A mark says that its stream is done up to a number. sync.c submits, marks
 * and looks; gate.c knows what a value gates, behind.c what stands behind a host function; latency.c and due.c
 * know how long things take.
 */
#ifndef BACKEND_HOST_TRACK_STATE_H
#define BACKEND_HOST_TRACK_STATE_H

#include <stdatomic.h>

#include "client/state.h"
#include "ivshmem/habit.h"

#define FGW_MAX_UNFINISHED                                                                                             \
    512u /* submissions the device has not finished: a driver's queue holds 1,024, then it blocks */
#define FGW_MAX_GATED                                                                                                  \
    256u /* submissions, and marks, while a stream waits for a value: the same queue, and no end in sight */
#define FGW_MARK_INTERVAL 32u /* submissions to a stream between two marks when nobody asks */

/* Work in a stream up to `seq` is done when `event` is. */
struct fgw_mark {
    struct fgw_mark *next;
    CUevent event;
    uint64_t seq;
    uint64_t behind_host; /* the host function that these submissions wait for, 0: none */
    uint32_t nr_submissions;
    uint32_t nr_copies; /* of them: copies that could go beside others' kernels */
    bool is_gate;       /* stands behind a wait for a value */
    bool is_beside;     /* in no turn */
};

/* An arena chunk that is completed when the work of its stream is done up to `seq`. */
struct fgw_chunk_due {
    struct fgw_chunk_due *next;
    uint64_t seq;
    uint32_t chunk;
};

enum fgw_submission {
    FGW_SUBMIT_WORK,   /* in a turn */
    FGW_SUBMIT_COPY,   /* in a turn, too; a copy that could go beside others' kernels */
    FGW_SUBMIT_BESIDE, /* a copy that is in no turn */
};

/* Floors above hear of what becomes of submissions. */
struct fgw_track_listener {
    /* Something may be running that is in a turn, since `begun_ns` if nothing ran before. `was_empty`: nothing was
     * unfinished. */
    void (*started)(struct fgw_worker *worker, bool was_empty, uint64_t begun_ns);
    /* So many submissions in turns have ended, or nothing of a context will be heard of any more. */
    void (*finished)(struct fgw_worker *worker, uint32_t nr, uint64_t now_ns);
    /* The copy at hand has been submitted, in a turn or in none. */
    void (*copied)(struct fgw_worker *worker);
    /* Something has ended that somebody may wait for. */
    void (*progressed)(struct fgw_worker *worker);
    /* Streams of this context are about to go. */
    void (*dropped)(struct fgw_worker *worker, struct fgw_context *context);
};

#define FGW_MAX_BEHIND 256u

struct fgw_behind {
    uint64_t number;         /* the worker's number, never used again; 0: nothing stands behind it any more */
    atomic_bool is_followed; /* something stands behind it; read by the driver's threads, too */
};

struct fgw_all_behind {
    struct fgw_behind items[FGW_MAX_BEHIND];
    uint32_t nr; /* that are open */
    uint64_t last_number;
    bool has_nodes; /* a graph has, or had, a function */
};

/* They are of what an idle device gets: soon after its last work, or after a rest. */
struct fgw_latency_samples {
    uint64_t mean_ns;
    uint32_t nr; /* measured so far */
    uint32_t nr_tried;
    uint32_t nr_until_next; /* times that an idle device gets work until it is measured again */
};

struct fgw_latency {
    struct fgw_latency_samples soon, rested;
    struct fgw_latency_samples *measuring; /* NULL: it is not being measured */
    struct fgw_context *context;           /* of the events, NULL: there are none */
    CUevent events[2];                     /* before and behind what is measured */
    const struct fgw_stream *stream;       /* all of it is in */
    uint32_t nr_recorded;                  /* times that the second event was */
    uint64_t begun_ns, submit_ns;
};

struct fgw_due {
    uint64_t mean_ns;          /* of one submission, whatever it is; 0: unknown */
    uint64_t work_ns, copy_ns; /* of one that is no copy, and of a copy; likewise */
    struct fgv_habit error;    /* how far from what was expected they end */
};

struct fgw_track {
    const struct fgw_track_listener *listener;
    uint64_t seq; /* counts submissions */
    struct fgw_stream *busy;
    uint32_t nr_unfinished;   /* submissions that the device may be working on, or that are gated */
    uint32_t nr_behind_hosts; /* submissions that wait for a host function of the guest: no use of the device */
    uint32_t nr_beside;       /* on their way beside others' work: not among the unfinished */
    uint32_t nr_copies;       /* of those that are unfinished or behind host functions */
    uint32_t nr_gates;        /* waits for values that may not be over */
    uint32_t nr_marks;        /* that are open */
    uint32_t mark_every;
    enum fgw_submission kind; /* of the submission at hand */
    bool is_last_copy;        /* the newest submission is a copy */
    uint64_t begun_ns;        /* the last submission to an idle device began */
    uint64_t polled_ns;       /* when the device was last looked at */
    uint64_t last_finish_ns;
    struct fgw_all_behind behind;
    struct fgw_latency latency;
    struct fgw_due due;
};

/* Counts all that has not ended, in a turn or in none. */
static inline uint32_t fgw_track_nr_open(const struct fgw_worker *worker)
{
    const struct fgw_track *track = worker->track;
    return track->nr_unfinished + track->nr_behind_hosts + track->nr_beside;
}

/* Tells whether the guest may be running a function, or one may be under way to it. */
static inline bool fgw_behind_may_run(const struct fgw_worker *worker)
{
    return worker->track->behind.nr != 0 || worker->track->behind.has_nodes;
}

/* A submission to an idle device begins; the driver may be done with it before it returns. */
static inline void fgw_track_begins(struct fgw_worker *worker, uint64_t now_ns)
{
    worker->track->begun_ns = now_ns;
}

/* Says what is submitted next, until this is called again. */
static inline void fgw_track_submits(struct fgw_worker *worker, enum fgw_submission kind)
{
    worker->track->kind = kind;
}

/* Says how many submissions to a stream share a mark from now on. */
static inline void fgw_track_mark_every(struct fgw_worker *worker, uint32_t nr_submissions)
{
    worker->track->mark_every = nr_submissions;
}

/* The device has nothing of this worker's that began earlier: from then on the next end is measured. */
static inline void fgw_track_measure_from(struct fgw_worker *worker, uint64_t from_ns)
{
    worker->track->last_finish_ns = from_ns;
}

#endif
