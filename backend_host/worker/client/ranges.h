/* Sets of address ranges, sorted and disjoint: what the client registered, allocated, reserved, mapped. */
#ifndef BACKEND_HOST_WORKER_RANGES_H
#define BACKEND_HOST_WORKER_RANGES_H

#include <stdbool.h>
#include <stdint.h>

struct fgv_context;
struct fgv_memory_pool;

struct fgv_range {
    uint64_t address;
    uint64_t bytes;
    struct fgv_context *context;  /* that it dies with; NULL for what outlives contexts */
    struct fgv_memory_pool *pool; /* of pooled memory */
    uint64_t owner;               /* of a mapping: the number of its physical memory */
};

struct fgv_ranges {
    struct fgv_range *items;
    uint32_t nr, room;
};

/* Index of the first range that begins after `address`. */
uint32_t fgv_ranges_after(const struct fgv_ranges *ranges, uint64_t address);
/* The one that begins there. */
struct fgv_range *fgv_ranges_find(struct fgv_ranges *ranges, uint64_t address);
/* The one that holds all of these bytes. */
struct fgv_range *fgv_ranges_around(struct fgv_ranges *ranges, uint64_t address, uint64_t bytes);
bool fgv_ranges_overlap(const struct fgv_ranges *ranges, uint64_t address, uint64_t bytes);
/* Whether whole ranges, side by side, make up these bytes. */
bool fgv_ranges_fill(const struct fgv_ranges *ranges, uint64_t address, uint64_t bytes);
/* Room for one more; false: no memory, or there are `limit`. */
bool fgv_ranges_make_room(struct fgv_ranges *ranges, uint32_t limit);
/* After fgv_ranges_make_room. */
void fgv_ranges_insert(struct fgv_ranges *ranges, struct fgv_range range);
void fgv_ranges_erase(struct fgv_ranges *ranges, struct fgv_range *range);

#endif
