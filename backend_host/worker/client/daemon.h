/*
 * The socket to the daemon, once there is a client. The daemon sends pieces of the window (ivshmem/piece.h) and what
 * the worker asked it to find on the vGPU's shelf; the worker says what lies there of its client's.
 * backend_host/shelf.py is the other end. Nothing here waits.
 */
#ifndef BACKEND_HOST_WORKER_DAEMON_H
#define BACKEND_HOST_WORKER_DAEMON_H

#include "client/state.h"

enum fgw_shelf_word {
    FGW_SHELF_PUT = 1, /* with descriptors */
    FGW_SHELF_DROP = 2,
    FGW_SHELF_FIND = 3,
    FGW_SHELF_FOUND = 4, /* the daemon's: with descriptors, or without where there is nothing */
    FGW_SHELF_PAGE = 5,  /* the daemon's: a worker that stands goes by this page, as this vGPU's, in this slot */
};

struct fgw_shelf_message {
    uint64_t word;
    struct fgw_key key; /* of PAGE: vGPU and slot */
    uint64_t bytes;     /* of memory; of PUT and FOUND */
};

_Static_assert(sizeof(struct fgw_shelf_message) == 32, "what backend_host/shelf.py packs");

/* CUDA_ERROR_NOT_READY: the daemon has much to read. CUDA_ERROR_OPERATING_SYSTEM: there is no daemon. */
CUresult fgw_daemon_tell(struct fgw_worker *worker, const struct fgw_shelf_message *message, const int *files,
                         uint32_t nr_files);
/* Reads one message, and does what it says. False: there is none. */
bool fgw_daemon_read(struct fgw_worker *worker);
/* Closes what was found last. */
void fgw_daemon_forget(struct fgw_worker *worker);
/* The page that it is to go by, which the daemon has sent, and NULL otherwise. */
const struct fgw_found *fgw_daemon_page(const struct fgw_worker *worker);
void fgw_daemon_forget_page(struct fgw_worker *worker);

#endif
