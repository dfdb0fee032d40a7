/* Which launches go in parts: see take.c. */
#ifndef BACKEND_HOST_TAKE_H
#define BACKEND_HOST_TAKE_H

#include "client/service.h"
#include "parts/state.h"

/* What becomes of this launch, which has its turn. A large one that goes whole is counted, with the reason. `runs`: it
 * is no part of a graph. */
enum fgw_parts_state fgw_parts_take(struct fgw_worker *worker, const struct fgw_request *request, bool runs);

#endif
