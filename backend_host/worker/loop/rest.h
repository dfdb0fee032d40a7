/* What the worker does while there is nothing to do: see rest.c. */
#ifndef BACKEND_HOST_REST_H
#define BACKEND_HOST_REST_H

#include "loop/state.h"

/* `nr_cpus`: that the host has. */
void fgw_rest_init(struct fgw_worker *worker, long nr_cpus);
/* One round without news: spin, or sleep. `is_backlog_full`: the ring holds a record that there is no room for. */
void fgw_rest(struct fgw_worker *worker, uint64_t now_ns, bool is_backlog_full);
/* There was news. */
void fgw_rest_end(struct fgw_worker *worker);
/* When the device is looked at again. */
uint64_t fgw_rest_next_poll_ns(const struct fgw_worker *worker, uint64_t now_ns);

#endif
