/*
 * The heap of a region, in pages, each with its owner's number beside it. Allocating is a compare and exchange per page
 * from free to the owner, undone when it meets another's page: no lock that a dying program could take with it, and
 * what a dead client held is found by its number. First fit from a moving hint. The lengths of allocations are the
 * allocator's private knowledge; nothing is kept in shared memory.
 *
 * Wrong when: thousands of small allocations are wanted. Callers that need them carve up larger ones.
 */
#ifndef IVSHMEM_HEAP_H
#define IVSHMEM_HEAP_H

#include "ivshmem/region.h"

#define FGV_HEAP_NONE UINT64_MAX

/* Offset in the region of `bytes` (rounded up to pages) for client `client_index`, or FGV_HEAP_NONE when no run of
 * pages is free. */
uint64_t fgv_heap_allocate(const struct fgv_region *region, uint32_t client_index, uint64_t bytes);
/* Gives back what allocate gave. Pages that are not this client's are left alone; returns the number of pages freed. */
uint64_t fgv_heap_free(const struct fgv_region *region, uint32_t client_index, uint64_t offset, uint64_t bytes);
/* Host: takes back everything a client held, the right to grow the window included; returns the number of pages. */
uint64_t fgv_heap_reclaim(const struct fgv_region *region, uint32_t client_index);

/* Guest: how many bytes are free at the end of what is mapped of the window, so that a run there needs fewer new ones.
 */
uint64_t fgv_window_end_bytes(const struct fgv_region *region);
/* Guest: the right to ask the device for more, which one client has at a time; false: another one has it. The host
 * takes it back from one that is gone. */
bool fgv_grower_take(const struct fgv_region *region, uint32_t client_index);
void fgv_grower_give(const struct fgv_region *region, uint32_t client_index);

#endif
