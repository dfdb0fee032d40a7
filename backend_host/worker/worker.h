/*
 * One worker: everything it knows of the one client it serves, private memory all of it. Which file does what:
 *
 *   worker.c   opening, the loop, sleeping, the end
 *   serve.c    from a record to a handler to an answer; the backlog
 *   sync.c     what of the submitted work has finished; gate.c: what of it is held up
 *   turn.c     when GPU work may be submitted, and what it is charged; beside.c: what may be without a turn; queue.c:
 *              how much of it may be in flight
 *   take.c parts.c pace.c lane.c variant.c  large launches in parts
 *   handles.c  the guest's numbers
 *   window.c memory.c pool.c virtual_memory.c copy.c box.c array.c texture.c launch.c image.c module.c link.c jit.c
 *              context.c output.c tensor_map.c   handlers
 *   host_function.c  what the guest calls in the order of a stream; has the one part that the device library's threads
 *              run
 *
 * All else of it runs on one thread.
 */
#ifndef BACKEND_HOST_WORKER_H
#define BACKEND_HOST_WORKER_H

#include "account.h"
#include "bell.h"
#include "beside.h"
#include "cuda_api/fatbin.h"
#include "due.h"
#include "face.h"
#include "grant.h"
#include "host_function.h"
#include "ivshmem/bell.h"
#include "ivshmem/habit.h"
#include "ivshmem/region.h"
#include "ivshmem/response.h"
#include "ivshmem/ring.h"
#include "latency.h"
#include "pool.h"
#include "ranges.h"
#include "serve.h"
#include "sets.h"
#include "slicing.h"
#include "withdraw.h"

#define FGV_MAX_HANDLES       (1u << 20)
#define FGV_MAX_CONTEXTS      64u
#define FGV_MAX_REQUEST_BYTES 512u /* of a fixed struct */
#define FGV_MAX_UNFINISHED                                                                                             \
    512u /* submissions the device has not finished: a driver's queue holds 1,024, then it blocks */
#define FGV_MAX_HELD_UP                                                                                                \
    256u /* submissions, and marks, while a stream waits for a value: the same queue, and no end in sight */
#define FGV_MAX_WAITERS         2048u
#define FGV_BACKLOG_BYTES       (4u << 20)
#define FGV_BLOB_BYTES          (UINT64_C(2) << 30) /* module images on their way, all together */
#define FGV_MAX_BLOBS           64u
#define FGV_MAX_LINKS           16u    /* not destroyed: each holds its logs, and in the driver its inputs */
#define FGV_MAX_RANGES          65536u /* registered host memory */
#define FGV_MAX_DEVICE_RANGES   (1u << 20)
#define FGV_MAX_RESERVATIONS    4096u
#define FGV_ADDRESS_BYTES       (UINT64_C(1) << 46) /* that one client may reserve: half of what a process has */
#define FGV_NODE_BYTES          16u                 /* of a node and its edge data in a chunk */
#define FGV_MAX_PARAMETER_BYTES 32764u
#define FGV_MARK_INTERVAL       32u /* submissions to a stream between two marks when nobody asks */

/* Work in a stream up to `seq` is done when `event` is. */
struct fgv_mark {
    struct fgv_mark *next;
    CUevent event;
    uint64_t seq;
    uint64_t held_by; /* the host function that these submissions wait for, 0: none */
    uint32_t nr_submissions;
    uint32_t nr_copies; /* of them: copies that could go beside others' kernels */
    bool is_gate;       /* stands behind a wait for a value */
    bool is_beside;     /* in no turn */
};

/* An arena chunk that is completed when the work of its stream is done up to `seq`. */
struct fgv_chunk_due {
    struct fgv_chunk_due *next;
    uint64_t seq;
    uint32_t chunk;
};

struct fgv_context;

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

/* Kinds of this table alone: what a guest knows by the driver's own values. */
#define FGV_OWN_TEXTURE ((enum fgv_handle_kind)FGV_HANDLE_KINDS)
#define FGV_OWN_SURFACE ((enum fgv_handle_kind)(FGV_HANDLE_KINDS + 1))

struct fgv_handles {
    struct fgv_handle *places;
    uint32_t mask;
    uint32_t nr;
};

/* A request that waits for GPU work. */
struct fgv_waiter {
    struct fgv_waiter *next;
    const struct fgv_service *service;
    struct fgv_stream *stream;   /* of FGV_WAITS_STREAM, else NULL */
    struct fgv_context *context; /* of FGV_WAITS_CONTEXT: this one, or NULL for all */
    uint64_t event;              /* the guest's number, of FGV_WAITS_EVENT */
    uint64_t seq;
    struct fgv_wire_header header;
    uint16_t response;
    _Alignas(8) uint8_t fixed[FGV_MAX_REQUEST_BYTES];
};

struct fgv_blob {
    uint64_t number;
    uint8_t *bytes;
    uint64_t size_bytes;
    uint64_t filled_bytes;
};

/* graph_memory.c */
struct fgv_graph_need;
struct fgv_graph_memory {
    struct fgv_graph_need *needs; /* of instantiated graphs that allocate */
    uint64_t charged_bytes;       /* to the quota */
    uint64_t nr_trims;
};

struct fgv_backlog {
    uint8_t *bytes;
    uint32_t head, tail; /* a queue that is moved to the front when it is empty */
};

struct fgv_worker {
    struct fgv_driver driver;

    struct fgv_region region;
    struct fgv_client_layout layout;
    struct fgv_client *client;
    struct fgv_consumer consumer;
    struct fgv_host_bell bell; /* under FGV_WAKE_BELL */
    int daemon;                /* socket */
    struct fgv_grantee grantee;
    struct fgv_worker_slot *slot;
    CUdevice device;
    CUcontext warm; /* the primary context retained before there was a client */

    struct fgv_context *contexts[FGV_MAX_CONTEXTS];
    struct fgv_context *current;
    struct fgv_handles handles;
    uint64_t last_number; /* of a graph or node */
    uint32_t nr_captures; /* that the guest began and neither ended nor lost with their streams */
    struct fgv_blob blobs[FGV_MAX_BLOBS];
    uint64_t blob_bytes;
    uint32_t nr_links;
    struct fgv_ranges pinned;
    struct fgv_ranges allocated;
    struct fgv_ranges reserved; /* addresses without memory */
    struct fgv_ranges mapped;   /* physical memory at such addresses */
    uint64_t reserved_bytes;
    struct fgv_memory_pools pools;
    struct fgv_graph_memory graph_memory;
    bool is_pinning_refused; /* the device library cannot; said once */
    bool is_pinned;

    uint64_t seq; /* counts submissions */
    struct fgv_stream *busy;
    struct fgv_waiter *first_waiter, *last_waiter;
    uint32_t nr_waiters;
    uint32_t nr_unfinished; /* submissions that the device may be working on, or that are held up by a gate */
    uint32_t nr_held;       /* submissions that wait for a host function of the guest: no use of the device */
    struct fgv_hosts hosts;
    uint32_t nr_gates; /* waits for values that may not be over */
    uint32_t nr_marks; /* that are open */
    bool is_gated;     /* the backlog waits for a gate or a host function, not for the grant */
    uint32_t mark_interval;
    uint64_t begun_ns;      /* the last submission to an idle device began */
    uint64_t busy_since_ns; /* charged up to here */
    uint64_t tail_until_ns; /* work was left to end beside another vGPU's, paid for in advance; 0: none */
    uint64_t polled_ns;     /* when the device was last looked at */
    uint64_t last_finish_ns;
    struct fgv_latency latency;
    struct fgv_due due;
    uint64_t idle_since_ns;    /* holding the grant with nothing to do */
    uint32_t alerted_sequence; /* of the grant for which the next one was woken in time */
    uint32_t hurried_sequence; /* of the grant that is given back before the slice is over, for a newcomer */
    uint64_t newcomer_looked_ns;
    uint64_t shared_ns;      /* another vGPU was last seen to want the device, or to have it; 0: not lately */
    uint64_t ended_busy_ns;  /* the client has ended with work in flight: not charged from here on */
    uint64_t pause_since_ns; /* nothing to do, with the grant or without */
    uint64_t burst_since_ns; /* work in flight without a pause since then */
    uint64_t burst_ns;       /* mean length of that */
    struct fgv_habit gap;    /* length of its pauses */
    struct fgv_backlog backlog;

    struct fgv_slicing_settings slicing;
    struct fgv_variant_maker maker;
    struct fgv_parts parts;
    struct fgv_withdrawal withdrawal;
    struct fgv_beside beside;

    fgv_inspector_fn inspector;
    bool has_printing; /* an image of which it is known that it may print: others need not be looked into */

    int output; /* memfd that stands for fd 1 */
    uint64_t output_read_bytes;

    uint64_t alerted_ns; /* when the vGPU's bell last changed */
    uint32_t bell_seen;

    uint64_t spin_ns;
    uint64_t yield_after_ns;
    uint64_t watch_most_ns;     /* before and after the time when something should end */
    struct fgv_habit oversleep; /* by how much naps come out longer */
    uint64_t quiet_since_ns;
    uint64_t next_poll_ns;
    uint64_t beat, beat_changed_ns;
    uint64_t shown_ns, shown_gpu_ns; /* when the guest was last told of its use of the device, and what it was */
    uint64_t looked_ns;              /* when the client was last looked after */
    const char *ended;               /* why the loop is over */
};

/* The value of a conditional handle, inverted: small numbers are those of default streams. */
#define FGV_HANDLE_GRAPH_CONDITION ((enum fgv_handle_kind)0x30)
/* In numbers that the worker gave. */
#define FGV_HOST_NUMBER (UINT64_C(3) << 62)

/* handles.c */
bool fgv_handles_init(struct fgv_worker *worker);
struct fgv_handle *fgv_handle_find(struct fgv_worker *worker, enum fgv_handle_kind kind, uint64_t number);
/* The stream of this number in the current context, or NULL. 0 and 1: the legacy one, 2: the per-thread one. */
struct fgv_stream *fgv_stream_find(struct fgv_worker *worker, uint64_t number);
/* What the driver's object is known as, 0: it has no number. Only for kinds that the worker numbers. */
uint64_t fgv_handle_number(struct fgv_worker *worker, enum fgv_handle_kind kind, const void *native);
/* Makes fgv_handle_number find it. False: no memory. */
bool fgv_handle_remember_native(struct fgv_worker *worker, enum fgv_handle_kind kind, uint64_t number);
/* Looks through all handles of a kind for the driver's object; NULL when it is none of them. */
struct fgv_handle *fgv_handle_of_native(struct fgv_worker *worker, enum fgv_handle_kind kind, const void *native);
void fgv_handles_drop_context(struct fgv_worker *worker, struct fgv_context *context);

/* sync.c */
void fgv_sync_submitted(struct fgv_worker *worker, struct fgv_stream *stream);
/* The chunk is completed once everything submitted to the stream so far is done; false: no memory, complete it now. */
bool fgv_sync_chunk(struct fgv_worker *worker, struct fgv_stream *stream, uint32_t chunk, bool is_urgent);
/* Makes the end of everything submitted visible, with an event in each stream that lacks one. */
void fgv_sync_mark_all(struct fgv_worker *worker);
bool fgv_sync_poll(struct fgv_worker *worker, uint64_t now_ns);
/* Waits until all submitted work is done, for a moment at most. */
void fgv_sync_settle(struct fgv_worker *worker, uint64_t limit_ns);
bool fgv_stream_is_captured(struct fgv_worker *worker, const struct fgv_stream *stream);
void fgv_stream_init(struct fgv_stream *stream, struct fgv_context *context, CUstream native);
struct fgv_stream *fgv_stream_new(struct fgv_context *context, CUstream native);
/* A destroyed stream's work goes on: it is marked while that is still possible. */
void fgv_sync_before_destroy(struct fgv_worker *worker, const struct fgv_request *request);
void fgv_stream_destroyed(struct fgv_worker *worker, struct fgv_stream *stream);
void fgv_sync_fault(struct fgv_worker *worker, struct fgv_context *context, CUresult result);
/* Everything about streams of a context that is about to be destroyed; waiters and chunks are answered. */
void fgv_sync_drop_context(struct fgv_worker *worker, struct fgv_context *context);

/* Everything so far in the stream is marked afterwards, or the context has failed; false: nothing can be recorded here.
 */
bool fgv_stream_mark(struct fgv_worker *worker, struct fgv_stream *stream);
/* What the guest put into the stream is no work of its own, but may have to wait for other streams' work. */
void fgv_stream_touch(struct fgv_worker *worker, struct fgv_stream *stream);
/* From the list of its context. */
void fgv_stream_remove(struct fgv_stream *stream);
void fgv_stream_free_if_unused(struct fgv_stream *stream);

/* gate.c */
/* How many submissions may be running: not those in streams that are held up. */
uint32_t fgv_nr_running(const struct fgv_worker *worker);
/* Submissions to the stream that have not ended, without what a host function holds. */
uint32_t fgv_nr_in_stream(const struct fgv_stream *stream);
/* No more may be queued before a stream that waits for a value goes on. */
bool fgv_gate_is_full(const struct fgv_worker *worker);
/* Around a call after which the stream may be held up, and before a submission. */
void fgv_gate_prepare(struct fgv_worker *worker, struct fgv_stream *stream, uint16_t call);
void fgv_gate_close(struct fgv_worker *worker, struct fgv_stream *stream, const struct fgv_request *request);
void fgv_gate_submit(struct fgv_worker *worker, struct fgv_stream *stream);

/* capture.c */
/* Whether what is submitted to this stream becomes part of a graph, or is refused because of one. */
bool fgv_is_recording(struct fgv_worker *worker, uint64_t stream_number);

/* waiters.c */
/* Queues the request until what it waits for is done. False: there is nothing to wait for, make the call now. */
bool fgv_waiters_add(struct fgv_worker *worker, const struct fgv_service *service, const struct fgv_request *request,
                     uint16_t response);
/* Makes the calls whose turn has come. */
bool fgv_waiters_run(struct fgv_worker *worker);
/* Only those for which there is no call to make. */
void fgv_waiters_answer(struct fgv_worker *worker);
/* Wakes whoever of the guest sleeps and waits for what has been submitted, copies included. */
void fgv_waiters_rouse(struct fgv_worker *worker);
/* Answers every request that still waits, or those that wait for this context. */
void fgv_waiters_drop(struct fgv_worker *worker);
void fgv_waiters_drop_context(struct fgv_worker *worker, struct fgv_context *context);

/* What submissions count among: those that are in no turn, are held, or that the device may be working on. */
static inline uint32_t *fgv_sync_count(struct fgv_worker *worker, uint64_t held_by, bool is_beside)
{
    return is_beside ? &worker->beside.nr : held_by != 0 ? &worker->nr_held : &worker->nr_unfinished;
}
/* All that has not ended, in a turn or in none. */
static inline uint32_t fgv_sync_nr_open(const struct fgv_worker *worker)
{
    return worker->nr_unfinished + worker->nr_held + worker->beside.nr;
}

/* queue.c */
/* Whether one more submission fits into the driver's queue. */
bool fgv_queue_has_room(const struct fgv_worker *worker);
/* How many may be in flight so that they end with the slice, of which so much is left; and while nobody waits. Both set
 * how many of them share a mark. */
uint32_t fgv_queue_most(struct fgv_worker *worker, uint64_t left_ns);
uint32_t fgv_queue_most_unwaited(struct fgv_worker *worker);
/* So much is queued that it matters in which streams: then the stream is to be asked too. */
bool fgv_queue_is_deep(const struct fgv_worker *worker);
bool fgv_queue_fits_stream(struct fgv_worker *worker, const struct fgv_stream *stream);

/* turn.c */
/* Whether one more submission may be made now. */
bool fgv_turn_begin(struct fgv_worker *worker);
/* After each round of the loop: charges, leaves the grant when there is nothing to do or the slice is over. */
void fgv_turn_poll(struct fgv_worker *worker, uint64_t now_ns);
/* Before the loop stands still for long: gives the grant back if nothing is in flight, and waits for none, whatever
 * stands in the backlog. It asks for a turn again when it has the time for one. */
void fgv_turn_pause(struct fgv_worker *worker);
/* The client has ended, maybe with work in flight whose end nobody will see: from here to `fgv_turn_end`, when the
 * device has let go of it, is charged. */
void fgv_turn_end_begin(struct fgv_worker *worker);
void fgv_turn_end(struct fgv_worker *worker);
void fgv_turn_started(struct fgv_worker *worker);
/* So many submissions have ended, `nr_copies` of them copies. */
void fgv_turn_finished(struct fgv_worker *worker, uint32_t nr, uint32_t nr_copies, uint64_t now_ns);
/* What is on the device, up to now. */
void fgv_turn_charge(struct fgv_worker *worker, uint64_t now_ns);
/* What is left when the grant goes on may be done late: the device gives the next one a time slice of its own first. */
#define FGV_TAIL_NS UINT64_C(5000000)
bool fgv_turn_may_change(const struct fgv_worker *worker);
/* When the grant of a slice that is over is to go on, by what is known of the work on the device; 0: not by that. */
uint64_t fgv_turn_way_ns(const struct fgv_worker *worker);
/* Gives the grant back. `wants_more` as in fgv_grant_leave. */
void fgv_turn_leave(struct fgv_worker *worker, bool wants_more, uint64_t now_ns);
/* Its work is off the device: until its turn comes no call is made that might wait for that work. */
static inline bool fgv_turn_is_off(const struct fgv_worker *worker)
{
    return worker->withdrawal.since_ns != 0;
}

/* rest.c */
void fgv_rest_init(struct fgv_worker *worker);
/* One round without news: spin, or sleep. `is_held_up`: the ring holds a record that there is no room for. */
void fgv_rest(struct fgv_worker *worker, uint64_t now_ns, bool is_held_up);
/* There was news. */
void fgv_rest_end(struct fgv_worker *worker);
/* When the device is looked at again. */
uint64_t fgv_rest_next_poll_ns(const struct fgv_worker *worker, uint64_t now_ns);

/* serve.c */
enum fgv_served { FGV_SERVED, FGV_SERVE_LATER };
enum fgv_served fgv_serve_record(struct fgv_worker *worker, const struct fgv_consumed *record);
bool fgv_serve_backlog(struct fgv_worker *worker);
void fgv_answer(struct fgv_worker *worker, const struct fgv_service *service, uint16_t response, CUresult result,
                const void *reply);
/* Carries a checked request out and answers it. */
void fgv_serve_now(struct fgv_worker *worker, const struct fgv_service *service, const struct fgv_request *request,
                   uint16_t response);
bool fgv_is_sticky(CUresult result);

/* memory.c */
/* Puts the quota in front of the driver's allocation calls. */
void fgv_memory_wrap(struct fgv_driver *driver);
/* Registers the arena and what the guest registered with the driver, in the current context, and takes it back before
 * that goes. */
void fgv_memory_pin(struct fgv_worker *worker);
void fgv_memory_unpin(struct fgv_worker *worker);
/* The driver freed a context's memory with the context. NULL: everything is forgotten, and the quota given back. */
void fgv_memory_drop_context(struct fgv_worker *worker, const struct fgv_context *context);
/* Takes from the quota, if need be after pools gave back what they keep. */
bool fgv_memory_take(struct fgv_worker *worker, uint64_t bytes);
/* The allocation is gone, or about to go: its quota is given back. */
void fgv_memory_forget(struct fgv_worker *worker, struct fgv_range *range);
/* True when the range lies in the heap at the client's address and all its pages belong to the client. */
bool fgv_memory_is_own_heap(const struct fgv_worker *worker, uint64_t address, uint64_t bytes);

/* copy.c */
/* Of a copy between host and device; 0 for all else. */
uint64_t fgv_copy_bytes(const struct fgv_request *request);
#define FGV_BULK_BYTES (64u * 1024u) /* smaller ones to the device take its engine for kernels */
/* Of such a copy: whether no CPU stages it. */
bool fgv_copy_is_pinned(const struct fgv_request *request);
/* Where the guest may point into its arena; NULL when out of bounds. */
uint8_t *fgv_arena_at(const struct fgv_worker *worker, uint64_t offset, uint64_t bytes);
uint8_t *fgv_arena_chunk(const struct fgv_worker *worker, uint32_t chunk);
void fgv_complete_chunk(struct fgv_worker *worker, uint32_t chunk, CUresult result);
/* What a request with an arena chunk owes its sender: the chunk, when the copy is done (stream) or at once, when it
 * failed. */
void fgv_copy_settle(struct fgv_worker *worker, const struct fgv_request *request, struct fgv_stream *stream,
                     CUresult result);

/* box.c: the chunk that the request lends, or FGV_NO_CHUNK */
uint32_t fgv_box_chunk(const struct fgv_request_cuMemcpy3DAsync_v2 *fixed);

/* array.c: gives back what was paid for the object of an array, and frees it */
void fgv_array_delete(struct fgv_worker *worker, void *object);

/* context.c */
/* Makes the context with these low 32 bits current; CUDA_ERROR_INVALID_CONTEXT when there is none. */
CUresult fgv_context_enter(struct fgv_worker *worker, uint32_t number);
void fgv_context_make_current(struct fgv_worker *worker, struct fgv_context *context);
struct fgv_context *fgv_context_find(struct fgv_worker *worker, uint64_t handle);
CUresult fgv_context_destroy(struct fgv_worker *worker, struct fgv_context *context);

/* launch.c */
CUresult fgv_attributes_translate(struct fgv_worker *worker, CUlaunchAttribute *attributes, uint32_t nr);

/* module.c */
/* A variable of a module or a library, in the current context. */
CUresult fgv_variable_find(struct fgv_worker *worker, enum fgv_handle_kind owner_kind, void *owner, const char *name,
                           CUdeviceptr *address, size_t *bytes);
struct fgv_kernel {
    uint32_t nr_parameters;
    uint32_t parameter_bytes;
    struct fgv_variant *variant; /* that runs a part of the grid; NULL: none was needed yet, or there is none */
    enum fgv_whole why_whole;
};
void fgv_kernel_free(struct fgv_worker *worker, struct fgv_kernel *kernel);
CUresult fgv_kernel_layout(struct fgv_worker *worker, struct fgv_handle *handle, const struct fgv_kernel **layout);

/* image.c */
void fgv_blobs_free(struct fgv_worker *worker);
/* The blob that has all its bytes, or NULL. */
struct fgv_blob *fgv_blob_whole(struct fgv_worker *worker, uint64_t number);
void fgv_blob_drop(struct fgv_worker *worker, uint64_t number);
/* CUDA_SUCCESS when the blob is an image that ends where it says. */
CUresult fgv_blob_measure(const struct fgv_blob *blob, enum fgv_image_kind *kind);

/* output.c */
bool fgv_output_open(struct fgv_worker *worker);
/* After a synchronisation: tells the guest when kernels have printed. */
void fgv_output_check(struct fgv_worker *worker);
/* Before an image is loaded: whether its kernels may print. */
void fgv_output_note_image(struct fgv_worker *worker, const uint8_t *image, size_t bytes);
/* Images of which it is not known that their kernels do not print. */
extern _Atomic uint32_t fgv_nr_printing;
/* Some kernel might have printed: then synchronisations go to the driver, which writes it out. */
static inline bool fgv_may_print(void)
{
    return atomic_load_explicit(&fgv_nr_printing, memory_order_relaxed) != 0;
}

/* worker.c */
/* Of the device: 90 for 9.0. */
uint32_t fgv_capability_of(const struct fgv_worker *worker);
/* Writes one line for the operator, into the daemon's log. */
void fgv_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern struct fgv_worker *fgv_the_worker; /* for the wrapped driver calls, which get no other argument */

static inline void fgv_count(_Atomic uint64_t *counter, uint64_t by)
{
    /* One writer, so no locked instruction. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by, memory_order_relaxed);
}

#endif
