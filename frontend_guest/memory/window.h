/* More heap than the region has, where the virtual machine can be asked for it: see window.c. */
#ifndef FRONTEND_GUEST_WINDOW_H
#define FRONTEND_GUEST_WINDOW_H

#include <stdint.h>

/* As fgv_heap_allocate, which found no room, and asks for more where that is possible. */
uint64_t fgv_window_allocate(uint64_t bytes);
/* A file with the heap's memory at `offset` from the region's start, which becomes the place in the file. -1: none. */
int fgv_window_reopen(uint64_t *offset);

#endif
