/*
 * Where kernels may read and write: one range of addresses, kernel_abi.h's, that holds nothing else of this process.
 *
 * Kernels collect the bits of the addresses they use, so that one outside of it shows (fault.c says what shows
 * otherwise). Memory that a kernel may use and that lies elsewhere, the program's own that it registered, or whatever
 * found no room, opens it while it is there: then nothing can be said. Safe in any thread, without the lock.
 */
#ifndef SOFTGPU_REACH_H
#define SOFTGPU_REACH_H

#include <stdbool.h>
#include <stdint.h>

/* New pages within reach, followed by one without access; outside of it if there is no room. `flags` as mmap's, beside
 * MAP_ANONYMOUS; MAP_PRIVATE unless they say otherwise. NULL: none. */
void *sgp_reach_map(uint64_t bytes, int protection, int flags);
void sgp_reach_unmap(void *start, uint64_t bytes);

/* From now on this process maps where the one that it was forked from never does: what that maps for kernels is mapped
 * here, too, at the same place. Before any other thread. */
void sgp_reach_go_inside(void);

/* Kernels may use these bytes, which somebody else mapped; and may no longer. */
void sgp_reach_add(uintptr_t start, uint64_t bytes);
void sgp_reach_remove(uintptr_t start, uint64_t bytes);

/* These bytes lie within reach. */
bool sgp_reach_holds(uintptr_t start, uint64_t bytes);
/* Whatever kernels may use lies within reach. */
bool sgp_reach_is_closed(void);

#endif
