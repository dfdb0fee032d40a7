/*
 * Where kernels may read and write: one window of addresses, kernel_abi.h's, that holds nothing else of this process.
 *
 * Kernels collect the bits of the addresses they use, so that one outside of the window shows (fault.c says what shows
 * otherwise). Memory that a kernel may use and that lies elsewhere, the program's own that it registered, or whatever
 * found no room, opens the window while it is there: then nothing can be said. Safe in any thread, without the lock.
 */
#ifndef SOFTGPU_WINDOW_H
#define SOFTGPU_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* New pages in the window, followed by one without access; outside of it if there is no room. `flags` as mmap's, beside
 * MAP_PRIVATE and MAP_ANONYMOUS. NULL: none. */
void *sgp_window_map(uint64_t bytes, int protection, int flags);
void sgp_window_unmap(void *start, uint64_t bytes);

/* Kernels may use these bytes, which somebody else mapped; and may no longer. */
void sgp_window_add(uintptr_t start, uint64_t bytes);
void sgp_window_remove(uintptr_t start, uint64_t bytes);

/* Whatever kernels may use lies in the window. */
bool sgp_window_is_closed(void);

#endif
