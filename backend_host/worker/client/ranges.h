/* Sets of address ranges, sorted and disjoint: what the client registered, allocated, reserved, mapped. */
#ifndef BACKEND_HOST_WORKER_RANGES_H
#define BACKEND_HOST_WORKER_RANGES_H

#include <stdbool.h>
#include <stdint.h>

struct fgw_context;
struct fgw_memory_pool;

struct fgw_range {
    uint64_t address;
    uint64_t bytes;
    struct fgw_context *context;  /* that it dies with, or that it is registered in; NULL for what outlives contexts */
    struct fgw_memory_pool *pool; /* of pooled memory */
    uint64_t owner; /* of a mapping: the number of its physical memory; of an extent: the driver's handle */
};

struct fgw_ranges {
    struct fgw_range *items;
    uint32_t nr, room;
};

/* Finds the index of the first range that begins after `address`. */
uint32_t fgw_ranges_after(const struct fgw_ranges *ranges, uint64_t address);
/* Finds the one that begins there. */
struct fgw_range *fgw_ranges_find(struct fgw_ranges *ranges, uint64_t address);
/* Finds the one that has all of these bytes in it. */
struct fgw_range *fgw_ranges_around(struct fgw_ranges *ranges, uint64_t address, uint64_t bytes);
bool fgw_ranges_overlap(const struct fgw_ranges *ranges, uint64_t address, uint64_t bytes);
/* Tells whether whole ranges, side by side, make up these bytes. */
bool fgw_ranges_fill(const struct fgw_ranges *ranges, uint64_t address, uint64_t bytes);
/* Makes room for one more; false: no memory, or there are `limit`. */
bool fgw_ranges_make_room(struct fgw_ranges *ranges, uint32_t limit);
/* It is for after fgw_ranges_make_room. */
void fgw_ranges_insert(struct fgw_ranges *ranges, struct fgw_range range);
void fgw_ranges_erase(struct fgw_ranges *ranges, struct fgw_range *range);
/* So many from this index on. */
void fgw_ranges_erase_some(struct fgw_ranges *ranges, uint32_t first, uint32_t nr);

#endif
