/* What comes of a request: see answer.c. */
#ifndef BACKEND_HOST_ANSWER_H
#define BACKEND_HOST_ANSWER_H

#include "client/service.h"
#include "client/state.h"

void fgw_answer(struct fgw_worker *worker, const struct fgw_service *service, uint16_t response, CUresult result,
                const void *reply);
/* Something is wrong with the request itself. */
void fgw_refuse(struct fgw_worker *worker, uint16_t response, CUresult result);
/* Answers before the request is served, if that is as good; returns who is to be answered after it. */
uint16_t fgw_answer_first(struct fgw_worker *worker, const struct fgw_service *service,
                          const struct fgw_request *request, uint16_t response);
/* The current context may have failed with this. */
void fgw_note_fault(struct fgw_worker *worker, CUresult result);

#endif
