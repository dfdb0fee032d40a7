/*
 * A piece of the window behind a region, as the daemon tells a worker of it: one message on their socket, with the
 * descriptor of the memory. See region.h.
 */
#ifndef IVSHMEM_PIECE_H
#define IVSHMEM_PIECE_H

#include <stdint.h>

struct fgv_piece {
    uint64_t window_bytes;
    uint64_t offset; /* in the window: what was mapped before */
    uint64_t bytes;
};

_Static_assert(sizeof(struct fgv_piece) == 24, "piece");

#endif
