/*
 * The objects of softgpu's driver and the rules that hold them together.
 *
 * One lock guards everything but the work itself: handles, allocations, queues. Kernels and copies run outside it. A
 * driver for a CPU has no use for finer locks, since the work it hands out takes the same cores; one lock leaves no
 * order of locks to get wrong.
 *
 * A handle that a program holds is the address of the object, but it is looked up in a table before it is followed, so
 * that a stale or invented handle is CUDA_ERROR_INVALID_HANDLE and not a crash. What a queue still needs is held by a
 * reference count.
 *
 * Wrong when: kernels become so short that the lock is the bottleneck (some 10 million driver calls a second).
 */
#ifndef SOFTGPU_DRIVER_H
#define SOFTGPU_DRIVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_api/types.h"
#include "kernel_abi.h"

#define SGP_EXPORT                  __attribute__((visibility("default")))
#define SGP_MAX_DEVICES             16
#define SGP_DRIVER_VERSION          13000
#define SGP_PAGE_BYTES              4096ull
#define SGP_MAX_PARAMETERS_BYTES    65536u
#define SGP_FIRST_PCI_BUS           0xf0
#define SGP_NR_MULTIPROCESSORS      16
#define SGP_MAX_BLOCK_THREADS       1024u
#define SGP_WARP_THREADS            32u
#define SGP_MAX_STATIC_SHARED_BYTES 49152u
#define SGP_MAX_SHARED_BYTES        166912u /* opt-in, per block */
#define SGP_NR_LIMITS               8
#define SGP_LEAST_PRIORITY          0
#define SGP_GREATEST_PRIORITY       (-5)
#define SGP_MAX_STACK_BYTES         (1u << 19) /* of one CUDA thread: CU_LIMIT_STACK_SIZE, at most */

enum sgp_kind {
    SGP_CONTEXT = 1,
    SGP_STREAM,
    SGP_EVENT,
    SGP_MODULE,
    SGP_LIBRARY,
    SGP_KERNEL,
    SGP_FUNCTION,
    SGP_LINK,
    SGP_ARRAY,
    SGP_MIPMAPPED_ARRAY,
    SGP_MEMORY_POOL,
    SGP_PHYSICAL,
    SGP_GRAPH,
    SGP_NODE,
    SGP_EXEC,
    SGP_USER_OBJECT,
};

/* First member of every object that a program holds a handle of. */
struct sgp_object {
    enum sgp_kind kind;
    uint32_t nr_references;
    void (*destroy)(
        void *object);        /* called with the lock held when the last reference goes; NULL: part of another object */
    struct CUctx_st *context; /* it belongs to; NULL: to none, or it is one itself */
};

struct sgp_command;
struct sgp_capture;
struct CUgraphNode_st;
struct sgp_state;
struct sgp_printf_buffer;

struct sgp_dependency {
    struct CUstream_st *stream;
    uint64_t sequence;
};

/* One entry of a stream. Embedded as the first member of what a particular command needs. */
struct sgp_command {
    struct sgp_command *next;
    CUresult (*run)(struct sgp_command *command); /* without the lock; NULL: nothing to do but being in order */
    void (*finish)(struct sgp_command *command);  /* with the lock, after run or instead of it: releases and frees */
    uint64_t sequence;
    struct sgp_dependency *dependencies;
    uint32_t nr_dependencies;
    bool runs_after_error; /* a host callback learns of a failed context, a kernel does not run there */
};

/* A set of nodes of a graph, each once. */
struct sgp_nodes {
    struct CUgraphNode_st **items;
    uint32_t nr;
};

struct CUstream_st {
    struct sgp_object object;
    struct CUstream_st *next;         /* in the context */
    struct CUstream_st *next_pending; /* among the streams with commands */
    struct CUstream_st *next_ready;
    struct sgp_command *head;
    struct sgp_command *tail;
    uint64_t nr_submitted;
    uint64_t nr_completed;
    uint64_t id;
    unsigned int flags;
    int priority;
    CUsynchronizationPolicy sync_policy; /* kept, not used: waiting always sleeps */
    bool is_pending;
    bool is_ready;
    bool is_running;
    bool is_blocking; /* takes part in the legacy default stream's order */
    struct sgp_capture *capture;
    struct sgp_nodes captured; /* what the next captured node depends on */
};

struct CUevent_st {
    struct sgp_object object;
    struct CUevent_st *next;
    struct CUstream_st *stream; /* recorded last in; NULL: never recorded */
    uint64_t sequence;
    uint64_t time_ns;
    unsigned int flags;
    struct sgp_capture *capture; /* recorded last in a stream that was captured: behind these nodes */
    struct sgp_nodes captured;
};

/* A memory pool: what it holds are allocations that name it. */
struct CUmemPoolHandle_st {
    struct sgp_object object;
    struct sgp_device *device;
    uint64_t release_threshold_bytes;
    uint64_t max_bytes; /* 0: what the device has */
    uint64_t used_bytes, used_high_bytes;
    uint64_t reserved_bytes, reserved_high_bytes;
    int reuse[3]; /* kept, not used: memory is had again once its free has run */
    bool is_destroyed;
};

struct sgp_device {
    int ordinal;  /* as this program counts */
    int physical; /* as the machine counts: CUDA_VISIBLE_DEVICES lies between */
    struct sgp_state *state;
    struct CUctx_st *primary;
    struct CUmemPoolHandle_st *default_pool;
    struct CUmemPoolHandle_st *pool; /* that cuMemAllocAsync takes from */
    uint32_t nr_primary_retains;     /* a reset leaves them as they are */
    CUresult fault;                  /* of this process: nothing of it runs here any more */
    unsigned int primary_flags;
    uint8_t *reservation;
    uint64_t reservation_bytes;
    uint64_t memory_bytes;
};

extern int sgp_nr_devices;
extern struct sgp_device sgp_devices[SGP_MAX_DEVICES];

struct CUctx_st {
    struct sgp_object object;
    struct sgp_device *device;
    struct CUctx_st *next;
    uint64_t id;
    unsigned int flags;
    unsigned int api_version;
    CUresult error; /* sticky: every later call of this context returns it */
    bool is_primary;
    bool is_active;
    bool is_ending; /* waits for values are given up */
    CUfunc_cache cache_config;
    uint64_t limits[SGP_NR_LIMITS];
    struct CUstream_st *legacy;
    struct CUstream_st *streams;
    struct CUevent_st *events;
    struct CUmod_st *modules;
    struct CUarray_st *arrays;
    struct CUmipmappedArray_st *mipmaps;
    struct sgp_printf_buffer *printf_buffer;
    uint64_t device_heap_bytes; /* handed out by malloc in kernels */
};

struct sgp_driver {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a command completed, or a turn ended */
    uint32_t nr_waiting;
    bool is_initialised;
    bool is_forked; /* this is a child of the process that called cuInit: nothing works here, as with CUDA */
    uint64_t next_id;
};

extern struct sgp_driver sgp_driver;

/* driver.c */
void sgp_lock(void);
void sgp_unlock(void);
void sgp_wait(void);                 /* with the lock: until something completed */
void sgp_notify(void);               /* with the lock */
CUresult sgp_enter_driver(void);     /* locks; on error nothing is locked */
CUresult sgp_leave(CUresult result); /* unlocks */
/* How entering went, for a call that needs this argument, too: where it is NULL, an error, and nothing is locked. */
static inline CUresult sgp_with_argument(CUresult entered, const void *argument)
{
    return entered || argument ? entered : sgp_leave(CUDA_ERROR_INVALID_VALUE);
}

uint64_t sgp_new_id(void);
uint64_t sgp_now_ns(void);
void sgp_log(const char *area, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* object.c, all with the lock held */
bool sgp_object_add(void *object, enum sgp_kind kind, void (*destroy)(void *));
bool sgp_object_is(const void *handle, enum sgp_kind kind);
struct CUctx_st *sgp_object_context(const void *handle); /* NULL: no object, or of no context */
void sgp_object_remove(void *object); /* the handle is no longer valid; the object lives on while referenced */
void sgp_object_hold(void *object);
void sgp_object_release(void *object);
/* As sgp_enter_driver, for a call on this object; `error` if the handle is none of the kind. */
CUresult sgp_enter_object(const void *handle, enum sgp_kind kind, CUresult error);

/* device.c */
struct sgp_device *sgp_device_find(CUdevice device);
CUresult sgp_enter_device(CUdevice handle, struct sgp_device **device); /* as sgp_enter_driver */
int sgp_device_attribute(const struct sgp_device *device,
                         CUdevice_attribute attribute); /* INT32_MIN: no such attribute */
void sgp_device_uuid(int physical, uint8_t uuid[16]);

/* current.c, of the calling thread */
struct CUctx_st *sgp_context_current(void);
CUresult sgp_context_push(struct CUctx_st *context);
void sgp_context_pop(void);
CUresult sgp_enter(struct CUctx_st **context); /* as sgp_enter_driver; finds the current context, in good health */
/* As sgp_enter; where no context is current, that of the object is taken. */
CUresult sgp_enter_by(const void *handle, struct CUctx_st **context);

/* current.c, with the lock */
extern struct CUctx_st *sgp_contexts;
struct CUctx_st *sgp_context_new(struct sgp_device *device);     /* NULL: no memory */
struct CUctx_st *sgp_context_primary(struct sgp_device *device); /* NULL: no memory */
/* After a fault nothing of this process runs on the device any more: all its contexts have the error, and no other is
 * made. */
void sgp_device_fail(struct sgp_device *device, CUresult fault);

/* stream.c */
CUresult sgp_enter_stream(CUstream handle, struct CUstream_st **stream); /* as sgp_enter_by */
CUresult sgp_stream_resolve(struct CUctx_st *context, CUstream stream, struct CUstream_st **resolved);
struct CUstream_st *sgp_stream_new(struct CUctx_st *context, unsigned int flags, int priority);
/* What the stream does from here on waits until `other` has completed that much. */
CUresult sgp_stream_wait(struct CUstream_st *stream, struct CUstream_st *other, uint64_t sequence);
CUresult sgp_host_submit(struct CUstream_st *stream, CUstream handle, CUhostFn function, CUstreamCallback callback,
                         void *data);

/* event.c */
CUresult sgp_event_record(struct CUevent_st *event, struct CUstream_st *stream);

/* queue.c, all with the lock held */
bool sgp_queue_start(void); /* the first executor thread */
/* Every thread that runs kernels begins with this, without the lock: a stack for the handlers of their faults. */
void sgp_queue_thread_start(void);
CUresult sgp_queue_submit(struct CUstream_st *stream, struct sgp_command *command, uint64_t *sequence);
CUresult sgp_queue_submit_and_wait(struct CUstream_st *stream, struct sgp_command *command);
CUresult sgp_queue_depend(struct sgp_command *command, struct CUstream_st *stream, uint64_t sequence);
void sgp_queue_wait(struct CUstream_st *stream, uint64_t sequence);
void sgp_queue_drain(struct CUctx_st *context); /* gives up the lock until all that was submitted so far is done */
bool sgp_queue_is_idle(const struct CUstream_st *stream);
CUresult sgp_command_in_order(struct sgp_command *command); /* run: nothing but to be in order, by an executor */
void sgp_command_free(struct sgp_command *command);         /* finish: of one that refers to nothing */

#endif
