/*
 * Host functions: what a guest put into a stream to be called on its own CPU (cuLaunchHostFunc, cuStreamAddCallback).
 *
 * The driver's stream gets a native host function that stands for the guest's. When the stream comes to it, one of the
 * driver's threads posts the guest's number in the mailbox, which is a response slot that a thread of the guest's
 * library waits at, and waits until the guest has set the slot to WAITING again. The worker's own thread is not needed
 * for that: it may be in a call of the driver that waits for the device, and so for the function.
 *
 * While the guest's function runs the device is not in use by what stands behind it. Such submissions are held: they
 * are counted apart, charged to nobody and no reason to keep the grant. They begin when the function has returned, so
 * the driver's thread then waits until the worker has the grant. What is known to stand behind a host function: what
 * follows in its stream, what follows an event recorded there, and the order of the legacy default stream. What depends
 * on two is held by the newer one.
 *
 * Wrong when: the worker's thread is in a long call of the driver. What was held then begins without the grant.
 */
#ifndef BACKEND_HOST_HOST_FUNCTION_H
#define BACKEND_HOST_HOST_FUNCTION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "serve.h"

#define FGV_MAX_HOSTS 256u /* in the driver's streams at once; further ones wait in the backlog */

struct fgv_worker;
struct fgv_context;
struct fgv_stream;

enum fgv_host_stage {
    FGV_HOST_FREE = 0,
    FGV_HOST_SUBMITTED, /* the stream has not come to it */
    FGV_HOST_RUNNING,   /* a thread of the driver's waits for the guest */
    FGV_HOST_RETURNED,  /* ... for the grant */
    FGV_HOST_RELEASED,  /* ... for nothing any more */
    FGV_HOST_FINISHED,  /* the driver's thread has left */
};

struct fgv_host {
    _Atomic uint32_t state; /* also the futex that the driver's thread sleeps on */
    atomic_bool is_followed;
    atomic_bool is_let_go; /* its context goes: nobody waits for the guest any more */
    uint64_t function;     /* the guest's number */
    uint64_t order;        /* the worker's number, never used again; 0: nothing is held by it any more */
    struct fgv_context *context;
};

struct fgv_hosts {
    struct fgv_host items[FGV_MAX_HOSTS];
    uint32_t nr; /* not FREE */
    uint64_t last_order;
    bool wants_turn;         /* one has returned, and there is work behind it */
    _Atomic int32_t mailbox; /* response slot, -1: none */
    pthread_mutex_t posting; /* of the driver's threads: one function at a time */
    atomic_bool is_ending;
    atomic_bool are_nodes_let_go; /* a context goes */
    bool has_nodes;               /* a graph has, or had, a function */
    atomic_uint nr_rounds;        /* of the worker's loop */
};

void fgv_host_init(struct fgv_worker *worker);
/* The worker's loop moves on. */
void fgv_host_round(struct fgv_worker *worker);
bool fgv_host_is_launch(uint16_t call);
bool fgv_host_has_room(const struct fgv_worker *worker);

/* Before a call that puts something into the stream: what it will be held by. */
void fgv_host_before(struct fgv_worker *worker, const struct fgv_service *service, struct fgv_stream *stream);
/* After such a call has succeeded: events carry on what holds a stream. */
void fgv_host_after(struct fgv_worker *worker, const struct fgv_service *service, const struct fgv_request *request,
                    struct fgv_stream *stream);
/* Lets go on what has returned, as the grant allows, and forgets what has finished. True when there was any. */
bool fgv_host_poll(struct fgv_worker *worker);

/* The context is about to be destroyed, and was destroyed. */
void fgv_host_let_go(struct fgv_worker *worker, const struct fgv_context *context);
void fgv_host_gone(struct fgv_worker *worker, const struct fgv_context *context);
/* Nobody waits for the guest any more. */
void fgv_host_end(struct fgv_worker *worker);

/* Parameters of a node that has the guest run its function of this number. What of the graph runs meanwhile cannot be
 * told, so a launch of it uses the device from its begin to its end. */
void fgv_host_node(struct fgv_worker *worker, uint64_t function, CUDA_HOST_NODE_PARAMS *params);
bool fgv_host_node_is_guests(const CUDA_HOST_NODE_PARAMS *params);
/* Whether the guest may be running a function, or one may be under way to it. */
bool fgv_host_may_run(const struct fgv_worker *worker);

#endif
