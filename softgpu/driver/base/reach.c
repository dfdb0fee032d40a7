/*
 * The reach of kernels from its start: a gap, the reservations of the devices (memory_map.c), what the driver maps for
 * kernels (here: pinned memory, stacks, shared memory), and the end, which is left to the program: FairGV's guests have
 * their region there, and so has the worker that serves them, at the same addresses.
 *
 * Places are handed out in a round, as in memory_map.c. Each takes whole units, so that huge pages can back it.
 */
#include "base/reach.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#include "kernel_abi.h"

#define FIRST_OFFSET  (UINT64_C(4) << 40)
#define INSIDE_OFFSET (UINT64_C(6) << 40) /* from here on: of the process that runs kernels */
#define END_OFFSET    (UINT64_C(7) << 40)
#define UNIT_BYTES    (UINT64_C(2) << 20)
#define NR_TRIES      1024
#define MAX_STRIDE    (UINT64_C(64) << 30)

static uint64_t first_offset = FIRST_OFFSET, end_offset = INSIDE_OFFSET;
static uint64_t next_offset = FIRST_OFFSET; /* atomic */
static uint64_t nr_outside;                 /* atomic: pieces of memory */

void sgp_reach_go_inside(void)
{
    first_offset = next_offset = INSIDE_OFFSET;
    end_offset = END_OFFSET;
}

bool sgp_reach_holds(uintptr_t start, uint64_t bytes)
{
    return start >= SGP_REACH_ADDRESS && bytes <= SGP_REACH_BYTES &&
           start - SGP_REACH_ADDRESS <= SGP_REACH_BYTES - bytes;
}

void sgp_reach_add(uintptr_t start, uint64_t bytes)
{
    if (!sgp_reach_holds(start, bytes)) {
        __atomic_fetch_add(&nr_outside, 1, __ATOMIC_RELAXED);
    }
}

void sgp_reach_remove(uintptr_t start, uint64_t bytes)
{
    if (!sgp_reach_holds(start, bytes)) {
        __atomic_fetch_sub(&nr_outside, 1, __ATOMIC_RELAXED);
    }
}

bool sgp_reach_is_closed(void)
{
    return __atomic_load_n(&nr_outside, __ATOMIC_RELAXED) == 0;
}

/* The offset of the next place of so many bytes, after which `stride` goes by. */
static uint64_t take_place(uint64_t bytes, uint64_t stride)
{
    uint64_t offset = __atomic_load_n(&next_offset, __ATOMIC_RELAXED), place, next;

    do {
        place = bytes <= end_offset - offset ? offset : first_offset;
        next = stride <= end_offset - place ? place + stride : end_offset;
    } while (!__atomic_compare_exchange_n(&next_offset, &offset, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return place;
}

/* A place that is taken may lie in a reservation of a TiB: steps grow, so that few of them pass it. */
static void *map_inside(uint64_t bytes, int protection, int flags)
{
    uint64_t place_bytes = (bytes / UNIT_BYTES + 1) * UNIT_BYTES; /* more than is mapped, by a page at least */
    uint64_t stride = place_bytes;

    for (int i = 0; i < NR_TRIES; i++, stride = stride < MAX_STRIDE ? 2 * stride : stride) {
        void *wanted = (void *)(uintptr_t)(SGP_REACH_ADDRESS + take_place(place_bytes, stride));
        void *at = mmap(wanted, bytes, protection, flags | MAP_FIXED_NOREPLACE, -1, 0);

        if (at == wanted) {
            return at;
        }
        if (at != MAP_FAILED) { /* before Linux 4.17 the flag is unknown, and the address a hint */
            munmap(at, bytes);
        } else if (errno != EEXIST) {
            break;
        }
    }
    return MAP_FAILED;
}

void *sgp_reach_map(uint64_t bytes, int protection, int flags)
{
    void *at = MAP_FAILED;

    flags |= MAP_ANONYMOUS | (flags & MAP_SHARED ? 0 : MAP_PRIVATE);
    if (bytes < end_offset - first_offset) {
        at = map_inside(bytes, protection, flags);
    }
    if (at == MAP_FAILED) {
        at = mmap(NULL, bytes, protection, flags, -1, 0);
    }
    if (at == MAP_FAILED) {
        return NULL;
    }
    sgp_reach_add((uintptr_t)at, bytes);
    return at;
}

void sgp_reach_unmap(void *start, uint64_t bytes)
{
    sgp_reach_remove((uintptr_t)start, bytes);
    munmap(start, bytes);
}
