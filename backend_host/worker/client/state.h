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

#include "client/ranges.h"
#include "client/told.h"
#include "cuda_api/driver.h"
#include "cuda_api/types.h"
#include "cuda_api/wire.h"
#include "ivshmem/bell.h"
#include "ivshmem/region.h"
#include "page/grantee.h"

#define FGW_MAX_CONTEXTS     64u
#define FGW_MAX_HANDLES      (1u << 20)
#define FGW_MAX_SHARED_FILES 200u /* of one allocation that is shared: the kernel passes 253 at once */

/* cffi: begin */
/* It tells whether kernels of an image may print; without an inspector all may. */
enum fgw_printing_verdict {
    FGW_PRINTS_NOT = 0,
    FGW_MAY_PRINT = 1,
    FGW_PRINTS_UNKNOWN = 2, /* fgw_image_is_silent will say if it does not; until then it may */
};
/* Called from the loop, before a module is loaded; an enum fgw_printing_verdict. The image is there during the call
 * only. */
typedef int32_t (*fgw_inspector_fn)(const uint8_t *image, uint64_t image_bytes, uint32_t capability);
/* Tells whether kernels of an image launch kernels. The image is there during the call only. */
typedef bool (*fgw_nests_fn)(const uint8_t *image, uint64_t image_bytes, uint32_t capability);
/* Tells what a driver takes of the device for an image, in one context. `is_exact`: there is a quota, and looking may
 * take its time. The image is there during the call only. */
typedef uint64_t (*fgw_needs_fn)(const uint8_t *image, uint64_t image_bytes, uint32_t capability, bool is_exact);
/* Tells what in an image makes its program depend on addresses that the driver chose, those bits of enum fgw_bound that
 * images have; or FGW_BOUND_UNKNOWN: fgw_image_binds will be told, with this ticket. The image is there during the call
 * only. */
typedef uint32_t (*fgw_binds_fn)(const uint8_t *image, uint64_t image_bytes, uint32_t capability, uint64_t ticket);
/* cffi: end */

#define FGW_BOUND_UNKNOWN (UINT32_C(1) << 31)

/* Kinds of this table alone: what a guest knows by the driver's own values. */
#define FGW_OWN_TEXTURE ((enum fgv_handle_kind)FGV_HANDLE_KINDS)
#define FGW_OWN_SURFACE ((enum fgv_handle_kind)(FGV_HANDLE_KINDS + 1))
/* The value of a conditional handle, inverted: small numbers are those of default streams. */
#define FGW_HANDLE_GRAPH_CONDITION ((enum fgv_handle_kind)(FGV_HANDLE_KINDS + 2))
#define FGW_NR_KINDS               (FGV_HANDLE_KINDS + 3)
/* In numbers that the worker gave. */
#define FGW_HOST_NUMBER (UINT64_C(3) << 62)

struct fgw_calls;
struct fgw_chunk_due;
struct fgw_entry;
struct fgw_kind;
struct fgw_lane;
struct fgw_loop;
struct fgw_mark;
struct fgw_replay;
struct fgw_slicing;
struct fgw_track;
struct fgw_turn;
struct fgw_worker;

/* Those that a driver keeps memory of the device for: stack, printf's buffer, heap. */
#define FGW_NR_TAKEN_LIMITS (CU_LIMIT_MALLOC_HEAP_SIZE + 1)

/* Of one context: taken.c. */
struct fgw_taken_limits {
    uint64_t first[FGW_NR_TAKEN_LIMITS]; /* when it was made */
    uint64_t now[FGW_NR_TAKEN_LIMITS];
    uint64_t local_bytes; /* the most that a kernel which ran in it has for a thread */
    uint64_t counted_bytes;
};

/* What the device library takes of the device: taken.c. */
struct fgw_costs {
    uint64_t context_bytes;
    uint64_t stream_bytes;
    bool is_primary_counted;
};

/* This is kept of a stream of the client's, or of the worker's own. track.h says what the numbers mean. */
struct fgw_stream {
    CUstream native;
    struct fgw_context *context;
    struct fgw_stream *next;      /* all of the context */
    struct fgw_stream *next_busy; /* all with unfinished work */
    uint64_t last_seq;            /* of the newest work */
    uint64_t done_seq;            /* everything up to here is done */
    uint64_t marked_seq;          /* the newest mark */
    uint64_t recorded;            /* the guest's number of the event that it recorded last, 0: none */
    uint64_t behind_host;         /* the host function that what is not marked yet waits for, 0: none */
    struct fgw_mark *first_mark, *last_mark;
    struct fgw_chunk_due *first_due, *last_due;
    uint32_t nr_unmarked; /* submissions since the newest mark */
    uint32_t nr_unmarked_copies;
    uint32_t nr_waiters;
    bool is_busy;
    bool is_beside; /* what is not marked yet is in no turn */
    bool is_gone;   /* destroyed by the guest; its work may still run */
    bool is_capture_origin;
    uint64_t capture_graph; /* number of the graph that the capture makes */
};

/* By it the kernels of a context are asked to give way: turn/yield.h. */
struct fgw_yield_word {
    uint64_t address; /* 0: there is none */
    bool is_zero;     /* what was written there last; neither: nothing was yet */
    bool is_set;
    bool is_written; /* the device may not have come to it */
};

struct fgw_context {
    uint64_t handle; /* the guest's number */
    CUcontext native;
    CUdevice device;
    bool is_primary;
    uint8_t home;   /* its place among the contexts, from 1 */
    CUresult fault; /* what the driver says since a kernel of it failed */
    struct fgw_stream *streams;
    struct fgw_stream legacy, per_thread;
    struct fgw_mark *free_marks; /* events of this context, for use again */
    CUstream side_stream;        /* of the worker's own, NULL: not needed yet */
    struct fgw_lane *lanes;      /* likewise, for parts of launches */
    struct fgw_yield_word yield_word;
    struct fgw_taken_limits limits;
};

/* What is known of a handle: always a copy of what the table has, which is changed by the handle's number. */
struct fgw_handle {
    uint64_t number; /* 0: it is none */
    void *native;
    void *object;
    uint64_t behind_host;  /* of an event: the host function that what it was recorded behind waits for */
    uint64_t recorded_seq; /* of an event: the place in its stream where it was recorded last */
    uint64_t taken_bytes;  /* of a module or a library with an image: the driver's memory for it in one context */
    uint32_t flags;        /* that an event was made with: no driver tells them */
    bool is_charged;       /* for taken_bytes, which may be 0: a library's modules are not */
    bool has_managed;      /* variables, as far as the client asked for them */
    uint8_t kind;
    uint8_t home; /* of the context that it lives in, 0: it outlives contexts */
};

struct fgw_handles {
    struct fgw_entry *entries; /* of handles.c, which hands out no pointer to one */
    uint32_t *places;          /* by number and kind: an index, 0: free */
    const struct fgw_kind *kinds;
    uint64_t secret[4];  /* of the hash: a guest cannot choose numbers that meet in one place */
    uint32_t mask;       /* of places */
    uint32_t nr_entries; /* in use, or free again */
    uint32_t room;       /* for entries */
    uint32_t free;       /* the index that was given back last, 0: none */
    uint32_t nr;
    uint32_t nr_of[FGW_NR_KINDS];
};

struct fgw_printing {
    fgw_inspector_fn inspector;
    bool is_certain; /* an image of which it is known that it may print: others need not be looked into */
    struct fgw_printed {
        int fd; /* 1 or 2, which is a memfd; 0: none */
        uint64_t read_bytes;
    } printed[2]; /* for the program's standard output, and for its standard error */
};

/* Of what is shared: random, so that only who was told it knows it. */
struct fgw_key {
    uint64_t words[2];
};

static inline bool fgw_key_is(const struct fgw_key *one, const struct fgw_key *other)
{
    return one->words[0] == other->words[0] && one->words[1] == other->words[1];
}

/* What the daemon said last of its shelf: daemon.c. */
struct fgw_found {
    bool is_there;
    struct fgw_key key;
    uint64_t bytes;
    uint32_t nr_files; /* 0: there is nothing with this key */
    int files[FGW_MAX_SHARED_FILES];
};

struct fgw_daemon {
    int socket;
    struct fgw_found found;
    struct fgw_found page; /* its key: vGPU and slot */
};

struct fgw_worker {
    struct fgv_driver driver;
    CUdevice device;
    CUcontext warm; /* the primary context retained before there was a client */

    struct fgv_region region;
    struct fgw_ranges pieces; /* of the window behind it: a file each */
    struct fgv_client_layout layout;
    struct fgv_client *client;
    struct fgv_host_bell bell; /* under FGV_WAKE_BELL */
    struct fgw_grantee grantee;
    struct fgw_worker_slot *slot;

    struct fgw_context *contexts[FGW_MAX_CONTEXTS];
    struct fgw_context *current;
    struct fgw_handles handles;
    struct fgw_told told;
    uint32_t nr_captures; /* that the guest began and neither ended nor lost with their streams */
    struct fgw_printing printing;
    struct fgw_costs costs;
    struct fgw_daemon daemon;
    const char *ended; /* why the loop is over */

    struct fgw_track *track;
    struct fgw_turn *turn;
    struct fgw_slicing *slicing; /* of the floor `parts` */
    struct fgw_calls *calls;
    struct fgw_replay *replay;
    struct fgw_loop *loop;
};

/* For the wrapped driver calls and the driver's threads, which get no other argument. */
extern struct fgw_worker *fgw_the_worker;

/* Ends the loop; `why` is a static string. */
static inline void fgw_worker_end(struct fgw_worker *worker, const char *why)
{
    worker->ended = why;
}

/* Of the device: 90 for 9.0. */
uint32_t fgw_capability_of(const struct fgw_worker *worker);

#endif
