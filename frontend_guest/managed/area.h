/*
 * Areas of managed memory. An area has one address in the program, in the worker and on the device: on the device it is
 * device memory, here it is ordinary memory of this process. Whose copy of a granule holds is kept for each granule.
 *
 * The pages are mapped twice: where the program sees them, as far as it may (trap.h), and as the shadow, which this
 * library alone knows and may always read and write. So a granule is filled before the program reaches it.
 *
 * Memory of at most half of the smallest area shares one with its like, as on NVIDIA's driver, in steps of 512 bytes;
 * as there, what is used again is not cleared.
 *
 * __managed__ variables are memory of the host's driver at addresses of its choosing. Those of the same pages here are
 * an area too, of which nothing but the variables is copied.
 *
 * One that is to stay with the CPU has pages of the region's heap instead, which the device reaches at any time
 * (residence.h): the program may write to all of it, always, and its shadow is where the heap has them.
 *
 * Everything here is between fgv_granules_enter and _leave (granules.h).
 */
#ifndef FRONTEND_GUEST_AREA_H
#define FRONTEND_GUEST_AREA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory/virtual_memory.h"

/* What is brought and sent at least: what a first touch brings back. */
#define FGV_GRANULE_BYTES UINT64_C(65536)

#define FGV_AREA_STEP_BYTES UINT64_C(512)
#define FGV_AREA_NR_STEPS   (FGV_MAPPING_BYTES / FGV_AREA_STEP_BYTES)

/* Whose copy holds, and so what the program may do with its own. */
enum fgv_granule {
    FGV_GRANULE_DEVICE = 0, /* the device's: no touch goes unnoticed */
    FGV_GRANULE_BOTH = 1,   /* both are the same: the program may read */
    FGV_GRANULE_GUEST = 2,  /* the program's: it may write */
};

struct fgv_context;

struct fgv_variable {
    uint64_t address, bytes;
    uint64_t owner; /* its module or library */
    char *name;     /* of a library's, which outlives contexts; a module's: NULL */
};

struct fgv_area {
    struct fgv_area *next;
    uint64_t address, bytes;        /* of variables: whole pages */
    struct fgv_mapping mapping;     /* not of variables */
    struct fgv_variable *variables; /* that it consists of; NULL: it is an allocation's, or allocations' */
    size_t nr_variables;
    bool is_doubtful; /* whether they are where they were is to be asked, by check() */
    void (*check)(struct fgv_area *area);
    struct fgv_context *context; /* of variables: in which there was work first; NULL: none yet */
    uint64_t context_handle;
    CUstream stream; /* for its copies, the same for all of a context: nothing else is waited for there */
    uint8_t *shadow;
    uint64_t heap;     /* its pages in the heap; 0: it has none there, but memory of its own and of the device */
    uint8_t *granules; /* an enum fgv_granule for each */
    uint64_t nr_granules;
    uint64_t first_given, end_given; /* granules outside are the device's */
    bool is_fresh;                   /* no work since it was made: where it is the device's it is zero */
    uint64_t wanted, wanted_end;     /* granules that the program said it would use on the CPU next; none: equal */
    uint64_t nr_shared;              /* allocations that share it; 0: it is all of one's */
    uint64_t steps[FGV_AREA_NR_STEPS / 64]; /* those that are taken, of an area that is shared */
};

extern struct fgv_area *fgv_areas;

/* The addresses of all areas that there ever were lie between these; by any thread at any time. */
extern _Atomic uint64_t fgv_areas_low, fgv_areas_high;
static inline bool fgv_areas_were_made(void)
{
    return atomic_load_explicit(&fgv_areas_high, memory_order_relaxed) != 0;
}
static inline bool fgv_areas_may_have(const void *at)
{
    const uint64_t low = atomic_load_explicit(&fgv_areas_low, memory_order_relaxed);
    return (uint64_t)(uintptr_t)at - low < atomic_load_explicit(&fgv_areas_high, memory_order_relaxed) - low;
}

/* Device memory and pages for it, of at least so many bytes, in the current context. NULL with *result. */
struct fgv_area *fgv_area_make(uint64_t bytes, CUresult *result);
/* Pages for variables, in place of what is at these addresses; NULL: no memory. */
struct fgv_area *fgv_area_make_at(uint64_t address, uint64_t bytes);
/* The area has this context from now on. */
CUresult fgv_area_adopt(struct fgv_area *area, struct fgv_context *context, uint64_t handle);
/* Its context goes. Of variables, which may be elsewhere in the next one, or in the same place. */
void fgv_area_orphan(struct fgv_area *area);
/* Another area has its pages. */
void fgv_area_leave(struct fgv_area *area);
/* Takes it out of the list, and its pages from the program. */
void fgv_area_drop(struct fgv_area *area);
/* Pages of this process's own, with these contents, in place of what is there, which nobody touches from then on.
 * False: no memory; nobody touches what is there now either. */
bool fgv_area_fill(struct fgv_area *area, const uint8_t *contents);
/* The one that has this address; NULL. */
struct fgv_area *fgv_area_find(uint64_t address);
/* Room for shared memory, as an offset into the area; UINT64_MAX: none. */
uint64_t fgv_area_take(struct fgv_area *area, uint64_t bytes);
void fgv_area_give(struct fgv_area *area, uint64_t offset, uint64_t bytes);

static inline uint64_t fgv_area_address(const struct fgv_area *area, uint64_t granule)
{
    return area->address + granule * FGV_GRANULE_BYTES;
}

/* Bytes of some granules; the last one may be short. */
static inline uint64_t fgv_area_bytes(const struct fgv_area *area, uint64_t first, uint64_t end)
{
    const uint64_t end_bytes = end == area->nr_granules ? area->bytes : end * FGV_GRANULE_BYTES;
    return end_bytes - first * FGV_GRANULE_BYTES;
}

#endif
