/*
 * The kernel module's device, where the guest has one: how large its region is, and the bells that it offers
 * (ivshmem/bell.h). FAIRGV_WAKE=poll leaves the bells alone: both sides then sleep in short naps.
 */
#ifndef FRONTEND_GUEST_BELL_H
#define FRONTEND_GUEST_BELL_H

#include <stdbool.h>
#include <stdint.h>

#include "ivshmem/bell.h"

struct fgv_bells {
    struct fgv_guest_bell bell; /* what the region refers to */
    const _Atomic uint32_t *rung;
    uint32_t nr_vectors;
};

/* Bytes of the region behind an open file of the module; 0: it is another file. */
uint64_t fgv_device_region_bytes(int file);
/* Takes over the file; false, and the file is still the caller's, when there is no bell to use. Until a client is known
 * it rings the daemon only. */
bool fgv_bells_open(struct fgv_bells *bells, int file);
void fgv_bells_close(struct fgv_bells *bells);
/* From here on the bell is this client's, and its entry says so. */
void fgv_bells_assign(struct fgv_bells *bells, struct fgv_client *client, uint32_t index);

#endif
