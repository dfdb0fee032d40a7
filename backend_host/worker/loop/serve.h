/* From a record to a handler to an answer, and the backlog: see serve.c. */
#ifndef BACKEND_HOST_SERVE_H
#define BACKEND_HOST_SERVE_H

#include "client/service.h"
#include "loop/state.h"

enum fgw_served { FGW_SERVED, FGW_SERVE_LATER };
enum fgw_served fgw_serve_record(struct fgw_worker *worker, const struct fgv_consumed *record);
bool fgw_serve_backlog(struct fgw_worker *worker);
/* Serves the first of those that wait for room on the device, if it is time to. True: it was answered. */
bool fgw_serve_lacking(struct fgw_worker *worker, uint64_t now_ns);
/* Carries a checked request out and answers it. False: it waits for room on the device. */
bool fgw_serve_now(struct fgw_worker *worker, const struct fgw_service *service, const struct fgw_request *request,
                   uint16_t response);

#endif
