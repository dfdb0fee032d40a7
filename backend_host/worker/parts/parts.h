/* A launch in parts: see parts.c. */
#ifndef BACKEND_HOST_PARTS_H
#define BACKEND_HOST_PARTS_H

#include "client/service.h"
#include "parts/state.h"

/* Submits what may be submitted now of the launch that was taken. */
enum fgw_parts_state fgw_parts_submit(struct fgw_worker *worker, const struct fgw_service *service,
                                      const struct fgw_request *request, CUresult *result);
/* What is on the device beside the parts does not end. */
bool fgw_parts_are_stuck(const struct fgw_worker *worker);
/* Whether this is a look at the stream of the launch that goes in parts, or will: its work is not done. */
bool fgw_parts_answers(const struct fgw_worker *worker, const struct fgw_request *request);
/* Whether a persistent kernel is on the device. */
bool fgw_parts_can_stop(const struct fgw_worker *worker);
/* Tells it to stop, if there is one. */
void fgw_parts_stop(struct fgw_worker *worker);
/* As struct fgw_turn_above has them. */
bool fgw_parts_is_one(const struct fgw_worker *worker);
uint64_t fgw_parts_stop_once(struct fgw_worker *worker);
/* Tells a persistent kernel to stop when the turn is over, and has variants go on being made. */
void fgw_parts_poll(struct fgw_worker *worker);

#endif
