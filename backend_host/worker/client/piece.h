/* Pieces of the window behind the region: see piece.c. */
#ifndef BACKEND_HOST_WORKER_PIECE_H
#define BACKEND_HOST_WORKER_PIECE_H

#include "client/state.h"
#include "ivshmem/piece.h"

/* Maps a piece behind those that are mapped, or says in the log what is wrong with it. The descriptor stays the
 * caller's; -1: none came. */
void fgw_piece_take(struct fgw_worker *worker, const struct fgv_piece *piece, int file);
/* Where the file ends of which the heap has this address: the region is one, each piece is another. */
uint64_t fgw_piece_file_end(struct fgw_worker *worker, uint64_t address);

#endif
