/*
 * Memory of another device for the client's extents, filled while its kernels change them: what changed since is told
 * by fingerprints. Each piece of it lies at a second address, where both devices reach it, until it takes the place of
 * what was at the first.
 *
 * What works beside the worker's own thread holds the span's lock a piece at a time (span.h), so that no extent goes
 * while it is copied.
 */
#ifndef BACKEND_HOST_WORKER_REPLAY_AHEAD_H
#define BACKEND_HOST_WORKER_REPLAY_AHEAD_H

#include <stdatomic.h>

#include "calls/fingerprint.h"
#include "client/state.h"

struct fgw_ahead_piece;

/* As struct fgw_compared, for others to read meanwhile; it outlives what is ahead. */
struct fgw_ahead_compared {
    _Atomic uint64_t bytes, changed_bytes;
};

struct fgw_ahead {
    const struct fgv_driver *driver; /* that counts nothing */
    CUcontext context;               /* of the device that memory is on, for copies */
    CUdevice from, to;
    CUstream stream;
    struct fgw_printer printer;
    struct fgw_ahead_piece *pieces; /* by address */
    uint32_t nr, room;
    uint64_t bytes;                /* of their memory */
    _Atomic uint64_t copied_bytes; /* for others to read meanwhile */
    struct fgw_ahead_compared *compared;
    const _Atomic bool *is_given_up; /* by others, meanwhile: it outlives what is ahead, too */
};

/* In the context, which is current; `code` of what takes fingerprints. It says why not, NULL: it is begun. */
const char *fgw_ahead_begin(struct fgw_ahead *ahead, const void *code);
/* Copies what is not there, or has changed since it was copied: of all extents that there are. Adds to `changed_bytes`.
 * It says why not. */
const char *fgw_ahead_round(struct fgw_ahead *ahead, struct fgw_worker *worker, uint64_t *changed_bytes);
/* The extents lie in the other device's memory, and the pieces have what they lay in before. By the worker's own
 * thread, while nothing is under way. It says why not: then they lie where they were, or the process is of no use any
 * more. */
const char *fgw_ahead_exchange(struct fgw_ahead *ahead, struct fgw_worker *worker, bool *is_lost);
/* All memory that the pieces have goes. The context is current. */
void fgw_ahead_end(struct fgw_ahead *ahead);

#endif
