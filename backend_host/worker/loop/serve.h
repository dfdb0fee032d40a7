/* From a record to a handler to an answer, and the backlog: see serve.c. */
#ifndef BACKEND_HOST_SERVE_H
#define BACKEND_HOST_SERVE_H

#include "client/service.h"
#include "loop/state.h"

enum fgw_served { FGW_SERVED, FGW_SERVE_LATER };
enum fgw_served fgw_serve_record(struct fgw_worker *worker, const struct fgv_consumed *record);
bool fgw_serve_backlog(struct fgw_worker *worker);
/* Carries a checked request out and answers it. */
void fgw_serve_now(struct fgw_worker *worker, const struct fgw_service *service, const struct fgw_request *request,
                   uint16_t response);

#endif
