/*
 * What the daemon tells a guest of its own vGPU: figures for people, in the first page of the region, behind the
 * header.
 *
 * The daemon writes and never reads them. A guest that writes them misleads itself. They are of this vGPU alone; the
 * one that others have a part in is what it is entitled to, which is theirs and its own weights and bounds, and who is
 * active.
 *
 * Wrong when: the daemon died. The figures stay as they were; the beat in the header tells.
 */
#ifndef IVSHMEM_TOLD_H
#define IVSHMEM_TOLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ivshmem/region.h"

#define FGV_TOLD_OFFSET     192u /* in the region */
#define FGV_TOLD_NOT_ACTIVE UINT32_MAX

/* As it stands there. Parts are of the GPU, in thousandths. */
struct fgv_told {
    _Atomic uint32_t sequence; /* odd while the rest is written; 0: nothing was told yet */
    _Atomic uint32_t weight;
    _Atomic uint64_t quota_bytes;       /* of device memory; 0: none */
    _Atomic uint32_t request_permille;  /* that it gets at least while it has work; 0: none */
    _Atomic uint32_t limit_permille;    /* that it uses at most; 1000: no limit */
    _Atomic uint32_t entitled_permille; /* among those that are active now; FGV_TOLD_NOT_ACTIVE: it is not */
    _Atomic uint32_t used_permille;     /* in the last ten seconds; above 1000 when longer work has just ended */
    _Atomic uint64_t used_ns;           /* GPU time since the vGPU came */
    _Atomic uint64_t wait_ns;           /* that its programs waited for turns */
    _Atomic uint64_t nr_waits;
    _Atomic uint64_t memory_bytes; /* of the device, that it has now */
};

_Static_assert(sizeof(struct fgv_told) == 64, "a cache line");
_Static_assert(FGV_TOLD_OFFSET == sizeof(struct fgv_region_header), "behind the header");

/* The same as plain data. */
struct fgv_told_values {
    uint32_t weight, request_permille, limit_permille, entitled_permille, used_permille;
    uint64_t quota_bytes, used_ns, wait_ns, nr_waits, memory_bytes;
};

/* Host, from one thread at a time. `number` counts the writes, and is kept by the writer: what stands there is not
 * believed. */
void fgv_told_write(const struct fgv_region *region, uint32_t number, const struct fgv_told_values *values);

/* Guest: all of one write. False while nothing was told, or it is rewritten again and again. */
bool fgv_told_read(const struct fgv_region *region, struct fgv_told_values *values);

#endif
