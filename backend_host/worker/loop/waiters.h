/* Requests that wait for GPU work: see waiters.c. */
#ifndef BACKEND_HOST_WAITERS_H
#define BACKEND_HOST_WAITERS_H

#include "client/service.h"
#include "loop/state.h"

/* Queues the request until what it waits for is done. False: there is nothing to wait for, make the call now. */
bool fgw_waiters_add(struct fgw_worker *worker, const struct fgw_service *service, const struct fgw_request *request,
                     uint16_t response);
/* Makes the calls whose turn has come. */
bool fgw_waiters_run(struct fgw_worker *worker);
/* Answers those for which there is no call to make. */
void fgw_waiters_answer(struct fgw_worker *worker);
/* Wakes whoever of the guest sleeps and waits for what has been submitted, copies included. */
void fgw_waiters_rouse(struct fgw_worker *worker);
/* Drops every request that still waits, or answers those that wait for this context. */
void fgw_waiters_drop(struct fgw_worker *worker);
void fgw_waiters_drop_context(struct fgw_worker *worker, struct fgw_context *context);

#endif
