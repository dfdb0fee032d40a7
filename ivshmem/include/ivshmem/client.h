/*
 * The daemon's half of a client's life: what it sees of an entry, and the steps it may make. The states are in
 * region.h.
 *
 * Every step is a compare and exchange from the state that was seen: when the guest moved on meanwhile nothing happens
 * and the daemon looks again. A view is for watching; lengths and offsets come from fgv_client_read_layout, which
 * checks them.
 */
#ifndef IVSHMEM_CLIENT_H
#define IVSHMEM_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "ivshmem/region.h"

/* A private copy, each field read once. `state` is whatever the guest wrote, a known state or not. */
struct fgv_client_view {
    uint64_t beat;
    uint32_t state;
    uint32_t pid;
    uint32_t refusal;
    uint32_t deferred_error;
    uint32_t sticky_error;
    uint8_t boot_id[16];
    char program[FGV_PROGRAM_BYTES]; /* NUL-terminated, only printable characters left */
};

/* False when there is no such entry. */
bool fgv_client_look(const struct fgv_region *region, uint32_t index, struct fgv_client_view *view);
/* A bit for each entry that is not free. */
uint64_t fgv_clients_in_use(const struct fgv_region *region);

/* State `from` -> `to`; false when the state was another. Release: what was written before is seen with it. */
bool fgv_client_step(const struct fgv_region *region, uint32_t index, uint32_t from, uint32_t to);

/* HELLO -> REFUSED with the CUresult `code` that the guest's program gets. */
bool fgv_client_refuse(const struct fgv_region *region, uint32_t index, uint32_t code);

/* Every call of the program gives the CUresult `code` from now on, also when its worker has ended. False when it is not
 * READY. */
bool fgv_client_fail(const struct fgv_region *region, uint32_t index, uint32_t code);

/* `seen` -> FREE, the host's words cleared for whoever claims the entry next. The pages must have been taken back
 * before. */
bool fgv_client_release(const struct fgv_region *region, uint32_t index, uint32_t seen);

/* Who owns the heap's pages, counted now. */
struct fgv_heap_census {
    uint64_t nr_free;
    uint64_t nr_stray; /* owned by a number that is no client's: a guest wrote there */
    uint64_t nr_owned[FGV_NR_CLIENTS];
};
void fgv_heap_count(const struct fgv_region *region, struct fgv_heap_census *census);

#endif
