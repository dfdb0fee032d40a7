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
#include "ivshmem/bell.h"
#include "ivshmem/region.h"
#include "page/grantee.h"

#define FGV_MAX_CONTEXTS 64u
#define FGV_MAX_HANDLES  (1u << 20)

/* cffi: begin */
/* Whether kernels of an image may print; without an inspector all may. */
enum fgv_printing_verdict {
    FGV_PRINTS_NOT = 0,
    FGV_MAY_PRINT = 1,
    FGV_PRINTS_UNKNOWN = 2, /* fgv_image_is_silent will say if it does not; until then it may */
};
/* Called from the loop, before a module is loaded; an enum fgv_printing_verdict. The image is there during the call
 * only. */
typedef int32_t (*fgv_inspector_fn)(const uint8_t *image, uint64_t image_bytes, uint32_t capability);
/* cffi: end */

/* Kinds of this table alone: what a guest knows by the driver's own values. */
#define FGV_OWN_TEXTURE ((enum fgv_handle_kind)FGV_HANDLE_KINDS)
#define FGV_OWN_SURFACE ((enum fgv_handle_kind)(FGV_HANDLE_KINDS + 1))
/* The value of a conditional handle, inverted: small numbers are those of default streams. */
#define FGV_HANDLE_GRAPH_CONDITION ((enum fgv_handle_kind)0x30)
/* In numbers that the worker gave. */
#define FGV_HOST_NUMBER (UINT64_C(3) << 62)

struct fgv_calls;
struct fgv_chunk_due;
struct fgv_lane;
struct fgv_loop;
struct fgv_mark;
struct fgv_slicing;
struct fgv_track;
struct fgv_turn;
struct fgv_worker;

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

struct fgv_handle {
    uint64_t number; /* 0: free place */
    void *native;
    void *object;
    uint64_t parent;
    uint64_t held_by; /* of an event: the host function that what it was recorded behind waits for */
    struct fgv_context *context;
    uint32_t nr_children;
    uint8_t kind;
    uint8_t parent_kind;
};

/* Gives back what hangs on a handle that is in the table no more. It may unbind others. */
typedef void (*fgv_release)(struct fgv_worker *worker, const struct fgv_handle *handle);

struct fgv_handles {
    struct fgv_handle *places;
    uint32_t mask;
    uint32_t nr;
    const fgv_release *releases; /* by kind; NULL: `object` is freed, which is all */
};

struct fgv_printing {
    fgv_inspector_fn inspector;
    bool is_certain; /* an image of which it is known that it may print: others need not be looked into */
    int file;        /* memfd that stands for fd 1, -1: none */
    uint64_t read_bytes;
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
