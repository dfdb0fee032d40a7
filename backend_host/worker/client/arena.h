/* Finds the bytes of a copy, and the chunks of the client's arena. */
#ifndef BACKEND_HOST_ARENA_H
#define BACKEND_HOST_ARENA_H

#include "client/service.h"
#include "client/state.h"

#define FGW_BULK_BYTES (64u * 1024u) /* smaller copies to the device take its engine for kernels */

/* Finds where the guest points into its arena; NULL when out of bounds. */
uint8_t *fgw_arena_at(const struct fgw_worker *worker, uint64_t offset, uint64_t bytes);
uint8_t *fgw_arena_chunk(const struct fgw_worker *worker, uint32_t chunk);
void fgw_complete_chunk(struct fgw_worker *worker, uint32_t chunk, CUresult result);
/* Tells the bytes of a copy between host and device; 0 for all else. */
uint64_t fgw_copy_bytes(const struct fgw_request *request);
/* Tells of such a copy whether no CPU stages it. */
bool fgw_copy_is_pinned(const struct fgw_request *request);

#endif
