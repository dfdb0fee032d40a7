/* Whole pages of the region's heap, and of the window behind it, which have one address here and in the worker. */
#ifndef FRONTEND_GUEST_HEAP_PAGES_H
#define FRONTEND_GUEST_HEAP_PAGES_H

#include <stdint.h>

/* Their address; what is in them is anybody's. 0: there is no room, which was said. Fills `rounded_bytes` with what
 * they have in all. */
uint64_t fgv_heap_pages_take(uint64_t bytes, uint64_t *rounded_bytes);
void fgv_heap_pages_give(uint64_t address, uint64_t bytes);

#endif
