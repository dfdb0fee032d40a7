/* A launch in parts: see parts.c. */
#ifndef BACKEND_HOST_PARTS_H
#define BACKEND_HOST_PARTS_H

#include "client/service.h"
#include "parts/state.h"

/* Submits what may be submitted now of the launch that was taken. */
enum fgv_parts_state fgv_parts_submit(struct fgv_worker *worker, const struct fgv_service *service,
                                      const struct fgv_request *request, CUresult *result);
/* What is on the device beside the parts does not end. */
bool fgv_parts_are_held_up(const struct fgv_worker *worker);
/* Whether this is a look at the stream of the launch that goes in parts, or will: its work is not done. */
bool fgv_parts_answers(const struct fgv_worker *worker, const struct fgv_request *request);
/* Whether a persistent kernel is on the device. */
bool fgv_parts_can_stop(const struct fgv_worker *worker);
/* Tells it to stop, if there is one. */
void fgv_parts_stop(struct fgv_worker *worker);
/* As struct fgv_turn_above has them. */
bool fgv_parts_is_one(const struct fgv_worker *worker);
uint64_t fgv_parts_stop_once(struct fgv_worker *worker);
/* Tells a persistent kernel to stop when the turn is over. */
void fgv_parts_poll(struct fgv_worker *worker);

#endif
