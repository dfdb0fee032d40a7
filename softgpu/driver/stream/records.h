/* Streams, events and what is queued are plain data. All with the lock. */
#ifndef SOFTGPU_RECORDS_H
#define SOFTGPU_RECORDS_H

#include "device/current.h"

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
    bool uses_no_memory;   /* of the device, but with the lock */
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
    uint64_t thread; /* whose per-thread stream it is; 0: nobody's */
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
    struct sgp_shared_event *shared; /* with other processes, or NULL: it is what counts then */
    struct sgp_capture *capture;     /* recorded last in a stream that was captured: behind these nodes */
    struct sgp_nodes captured;
};

#endif
