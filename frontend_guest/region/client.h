/*
 * This process as a client of the region: mapped and greeted at cuInit, served once the worker has answered.
 *
 * Memory of a lost client is not given back before the program ends: threads may still write to the ring, and the
 * program to its pinned memory, while another program of this machine would already own the pages.
 */
#ifndef FRONTEND_GUEST_CLIENT_H
#define FRONTEND_GUEST_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"
#include "region/hello.h"

extern struct fgv_guest fgv_guest;

/*
 * How far this process has come. It lies in a page that a forked child finds zeroed, so that what is true of the
 * process that opened the region is never true of its child.
 */
enum fgv_connection {
    FGV_CONNECTION_CLOSED = 0,
    FGV_CONNECTION_OPEN = 1,
    FGV_CONNECTION_SERVED = 2,
    FGV_CONNECTION_LOST = 3,
    FGV_CONNECTION_ENDING = 4
};
extern _Atomic uint32_t *fgv_connection;

/* cuInit. May be called again after a failure, and by several threads. */
CUresult fgv_client_open(void);
/* Whether cuInit succeeded in this process: CUDA_SUCCESS, or what calls give that need no worker. */
CUresult fgv_client_is_open(void);
/* Waits until the worker serves this client. CUDA_SUCCESS, or what every further call gives. */
CUresult fgv_client_await(void);

/* True while somebody may still answer; for fgv_slot_wait and the ring. */
bool fgv_client_keep_waiting(void *unused, uint32_t nr_rounds);
/* Nobody will answer any more: says so once and returns what this call and all further ones give. */
CUresult fgv_client_lost(void);

#endif
