/*
 * One worker: what it knows of the one client it serves, as plain private memory. All of it is the loop's thread's, but
 * for what host_function.c shares with the device library's threads.
 *
 * Each floor above has a part of its own, which it alone defines: a floor cannot look into the part of one above it,
 * and writes none but its own.
 */
#ifndef BACKEND_HOST_STATE_H
#define BACKEND_HOST_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/driver.h"
#include "cuda_api/types.h"
#include "cuda_api/wire.h"
#include "grantee.h"
#include "handles.h"
#include "ivshmem/bell.h"
#include "ivshmem/region.h"
#include "printing.h"

#define FGV_MAX_CONTEXTS 64u

struct fgv_calls;
struct fgv_chunk_due;
struct fgv_lane;
struct fgv_loop;
struct fgv_mark;
struct fgv_slicing;
struct fgv_track;
struct fgv_turn;

/* What is kept of a stream of the client's, or of the worker's own. track.h says what the numbers mean. */
struct fgv_stream {
    CUstream native;
    struct fgv_context *context;
    struct fgv_stream *next;      /* all of the context */
    struct fgv_stream *next_busy; /* all with unfinished work */
    uint64_t last_seq;            /* of the newest work */
    uint64_t done_seq;            /* everything up to here is done */
    uint64_t marked_seq;          /* the newest mark */
    uint64_t held_by;             /* the host function that what is not marked yet waits for, 0: none */
    struct fgv_mark *first_mark, *last_mark;
    struct fgv_chunk_due *first_due, *last_due;
    uint32_t nr_unmarked; /* submissions since the newest mark */
    uint32_t nr_unmarked_copies;
    uint32_t nr_waiters;
    bool is_busy;
    bool is_beside; /* what is not marked yet is in no turn */
    bool is_gone;   /* destroyed by the guest; its work may still run */
    bool is_capture_origin;
    uint64_t capture_graph; /* number of the graph that the capture makes */
};

struct fgv_context {
    uint64_t handle; /* the guest's number */
    CUcontext native;
    CUdevice device;
    bool is_primary;
    CUresult fault; /* what the driver says since a kernel of it failed */
    struct fgv_stream *streams;
    struct fgv_stream legacy, per_thread;
    struct fgv_mark *free_marks; /* events of this context, for use again */
    CUstream side_stream;        /* of the worker's own, NULL: not needed yet */
    struct fgv_lane *lanes;      /* likewise, for parts of launches */
};

struct fgv_worker {
    struct fgv_driver driver;
    CUdevice device;
    CUcontext warm; /* the primary context retained before there was a client */

    struct fgv_region region;
    struct fgv_client_layout layout;
    struct fgv_client *client;
    struct fgv_host_bell bell; /* under FGV_WAKE_BELL */
    struct fgv_grantee grantee;
    struct fgv_worker_slot *slot;

    struct fgv_context *contexts[FGV_MAX_CONTEXTS];
    struct fgv_context *current;
    struct fgv_handles handles;
    uint32_t nr_captures; /* that the guest began and neither ended nor lost with their streams */
    struct fgv_printing printing;
    const char *ended; /* why the loop is over */

    struct fgv_track *track;
    struct fgv_turn *turn;
    struct fgv_slicing *slicing; /* of the floor `parts` */
    struct fgv_calls *calls;
    struct fgv_loop *loop;
};

/* For the wrapped driver calls and the driver's threads, which get no other argument. */
extern struct fgv_worker *fgv_the_worker;

/* Ends the loop; `why` is a static string. */
static inline void fgv_worker_end(struct fgv_worker *worker, const char *why)
{
    worker->ended = why;
}

/* Of the device: 90 for 9.0. */
uint32_t fgv_capability_of(const struct fgv_worker *worker);

#endif
