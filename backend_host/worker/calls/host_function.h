/*
 * Host functions: what a guest put into a stream to be called on its own CPU (cuLaunchHostFunc, cuStreamAddCallback).
 *
 * The driver's stream gets a native host function that stands for the guest's. When the stream comes to it, one of the
 * driver's threads posts the guest's number in the mailbox, which is a response slot that a thread of the guest's
 * library waits at, and waits until the guest has set the slot to WAITING again. The worker's own thread is not needed
 * for that: it may be in a call of the driver that waits for the device, and so for the function.
 *
 * What stands behind the function (hold.h) begins when the function has returned, so the driver's thread
 * then waits until the worker has the grant.
 *
 * Wrong when: the worker's thread is in a long call of the driver. What stood behind the function then begins without
 * the grant.
 */
#ifndef BACKEND_HOST_HOST_FUNCTION_H
#define BACKEND_HOST_HOST_FUNCTION_H

#include "calls/state.h"

#define FGW_HOST_NODE_KINDS (FGV_HOST_NODE_DRAIN + 1)

void fgw_host_init(struct fgw_worker *worker);
/* The worker's loop moves on. */
void fgw_host_round(struct fgw_worker *worker);
bool fgw_host_is_launch(uint16_t call);
bool fgw_host_has_room(const struct fgw_worker *worker);

/* Lets go on what has returned, as the grant allows, and forgets what has finished. True when there was any. */
bool fgw_host_poll(struct fgw_worker *worker);

/* The context is about to be destroyed, and was destroyed. */
void fgw_host_let_go(struct fgw_worker *worker, const struct fgw_context *context);
void fgw_host_gone(struct fgw_worker *worker, const struct fgw_context *context);
/* Nobody waits for the guest any more. */
void fgw_host_end(struct fgw_worker *worker);

/* Parameters of a node that has the guest run its function of this number. What of the graph runs meanwhile cannot be
 * told, so a launch of it uses the device from its begin to its end. */
void fgw_host_node(struct fgw_worker *worker, uint64_t function, enum fgv_host_node kind,
                   CUDA_HOST_NODE_PARAMS *params);
/* Which of them it is; FGW_HOST_NODE_KINDS: a node that was not made by fgw_host_node. */
enum fgv_host_node fgw_host_node_kind(const CUDA_HOST_NODE_PARAMS *params);
#endif
