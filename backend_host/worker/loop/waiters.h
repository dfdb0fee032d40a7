/* Requests that wait for GPU work: see waiters.c. */
#ifndef BACKEND_HOST_WAITERS_H
#define BACKEND_HOST_WAITERS_H

#include "client/service.h"
#include "loop/state.h"

/* Queues the request until what it waits for is done. False: there is nothing to wait for, make the call now. */
bool fgv_waiters_add(struct fgv_worker *worker, const struct fgv_service *service, const struct fgv_request *request,
                     uint16_t response);
/* Makes the calls whose turn has come. */
bool fgv_waiters_run(struct fgv_worker *worker);
/* Answers those for which there is no call to make. */
void fgv_waiters_answer(struct fgv_worker *worker);
/* Wakes whoever of the guest sleeps and waits for what has been submitted, copies included. */
void fgv_waiters_rouse(struct fgv_worker *worker);
/* Drops every request that still waits, or answers those that wait for this context. */
void fgv_waiters_drop(struct fgv_worker *worker);
void fgv_waiters_drop_context(struct fgv_worker *worker, struct fgv_context *context);

#endif
