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
/* As struct fgw_turn_above has it. */
bool fgw_parts_is_one(const struct fgw_worker *worker);

#endif
