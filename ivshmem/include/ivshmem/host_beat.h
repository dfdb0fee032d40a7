/*
 * The daemon's beat in its regions: one thread beats in all of them, every FGV_BEAT_NS.
 *
 * It is a thread of C, because threads of Python wait for each other: a daemon whose interpreter has no time for
 * seconds lives, and programs that begin meanwhile must not take it for dead. One that hangs is told from that: the
 * thread goes on in a region for a time after the daemon looked after it, and no longer.
 *
 * Wrong when: the process forks. A child has no such thread.
 */
#ifndef IVSHMEM_HOST_BEAT_H
#define IVSHMEM_HOST_BEAT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ivshmem/region.h"

/* Of one region; zeroed at first. */
struct fgv_host_beat {
    struct fgv_region_header *header;
    _Atomic uint64_t until_ns;
    atomic_bool is_listed;
    struct fgv_host_beat *next;
};

/* Beats in this region, which is the same each time, at once, and goes on for so long. */
void fgv_host_beat_keep(struct fgv_host_beat *beat, const struct fgv_region *region, uint64_t for_ns);

/* Beats no longer, and touches neither of the two again. */
void fgv_host_beat_stop(struct fgv_host_beat *beat);

#endif
