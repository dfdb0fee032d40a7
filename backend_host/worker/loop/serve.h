/* From a record to a handler to an answer, and the backlog: see serve.c. */
#ifndef BACKEND_HOST_SERVE_H
#define BACKEND_HOST_SERVE_H

#include "client/service.h"
#include "loop/state.h"

enum fgv_served { FGV_SERVED, FGV_SERVE_LATER };
enum fgv_served fgv_serve_record(struct fgv_worker *worker, const struct fgv_consumed *record);
bool fgv_serve_backlog(struct fgv_worker *worker);
void fgv_answer(struct fgv_worker *worker, const struct fgv_service *service, uint16_t response, CUresult result,
                const void *reply);
/* Carries a checked request out and answers it. */
void fgv_serve_now(struct fgv_worker *worker, const struct fgv_service *service, const struct fgv_request *request,
                   uint16_t response);

#endif
