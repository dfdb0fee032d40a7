/*
 * Host functions: what a guest put into a stream to be called on its own CPU (cuLaunchHostFunc, cuStreamAddCallback).
 *
 * The driver's stream gets a native host function that stands for the guest's. When the stream comes to it, one of the
 * driver's threads posts the guest's number in the mailbox, which is a response slot that a thread of the guest's
 * library waits at, and waits until the guest has set the slot to WAITING again. The worker's own thread is not needed
 * for that: it may be in a call of the driver that waits for the device, and so for the function.
 *
 * What stands behind the function is held (hold.h). It begins when the function has returned, so the driver's thread
 * then waits until the worker has the grant.
 *
 * Wrong when: the worker's thread is in a long call of the driver. What was held then begins without the grant.
 */
#ifndef BACKEND_HOST_HOST_FUNCTION_H
#define BACKEND_HOST_HOST_FUNCTION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hold.h"
#include "service.h"

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
    atomic_bool is_let_go;  /* its context goes: nobody waits for the guest any more */
    uint64_t function;      /* the guest's number */
    struct fgv_hold *hold;  /* what stands behind it; NULL: it was never submitted */
    struct fgv_context *context;
};

struct fgv_hosts {
    struct fgv_host items[FGV_MAX_HOLDS]; /* in the driver's streams at once; further ones wait in the backlog */
    _Atomic int32_t mailbox;              /* response slot, -1: none */
    pthread_mutex_t posting;              /* of the driver's threads: one function at a time */
    atomic_bool is_ending;
    atomic_bool are_nodes_let_go; /* a context goes */
    atomic_uint nr_rounds;        /* of the worker's loop */
};

void fgv_host_init(struct fgv_worker *worker);
/* The worker's loop moves on. */
void fgv_host_round(struct fgv_worker *worker);
bool fgv_host_is_launch(uint16_t call);
bool fgv_host_has_room(const struct fgv_worker *worker);

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
#endif
