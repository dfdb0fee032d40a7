/*
 * The view: what a process that runs kernels (runtime/wall.c) has inherited from this one, and what has changed since.
 *
 * Whether there is such a process is a setting: FAIRGV_SOFTGPU_WALL=1. It is for who runs kernels of others, as
 * FairGV's workers do. A program that runs its own needs none, and what it registers (cuMemHostRegister) is memory of
 * its own, which no second process can be given.
 *
 * Access to device memory changes with every allocation, and so does what is mapped where; such changes are kept and
 * made again over there. What is mapped must be there already, at another address: mappings of physical memory are
 * copies of one that was inherited. All else (pinned memory, shared files, code, textures) changes seldom: a new
 * process takes the place of the old one.
 */
#ifndef SOFTGPU_VIEW_H
#define SOFTGPU_VIEW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

/* Kept at most: more between two launches cost a new process, of a millisecond or two. */
#define SGP_VIEW_CHANGES 128u

struct sgp_view_change {
    uintptr_t start;
    uint64_t bytes;
    uintptr_t source; /* whose memory is mapped there from now on; 0: the same as before; SGP_VIEW_GONE: none */
    int protection;
};

#define SGP_VIEW_GONE ((uintptr_t)1)

/* Where a process's view stands. */
struct sgp_view {
    uint64_t age;        /* of what it has inherited */
    uint64_t nr_changes; /* that it has made */
};

bool sgp_view_is_walled(void);
/* MAP_SHARED for memory that kernels use where another process runs them, else MAP_PRIVATE. */
int sgp_view_map_flag(void);

/* Any thread. */
void sgp_view_outdate(void);

/* With the lock. Memory changed its access in this process. */
void sgp_view_changed(uintptr_t start, uint64_t bytes, int protection);
/* With the lock. Memory that lies at `source` is mapped, without access, or nothing is any more. */
void sgp_view_mapped(uintptr_t start, uint64_t bytes, uintptr_t source);
void sgp_view_unmapped(uintptr_t start, uint64_t bytes);
/* There: makes a change; false: it cannot be made. */
bool sgp_view_make(const struct sgp_view_change *change);
/* With the lock. */
struct sgp_view sgp_view_now(void);
/* With the lock. The changes that are to be made there, after which the view is that of now; false: too many, or it is
 * outdated. */
bool sgp_view_catch_up(struct sgp_view *view, struct sgp_view_change changes[SGP_VIEW_CHANGES], uint32_t *nr);

#endif
