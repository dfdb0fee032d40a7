/* What this process has of the region, and how it takes its place there: see hello.c. */
#ifndef FRONTEND_GUEST_HELLO_H
#define FRONTEND_GUEST_HELLO_H

#include <stdint.h>

#include "cuda_api/facts.h"
#include "cuda_api/types.h"
#include "ivshmem/region.h"
#include "ivshmem/response.h"
#include "ivshmem/ring.h"
#include "region/bell.h"
#include "region/growth.h"

#define FGV_NR_WAITS 8u

struct fgv_guest {
    struct fgv_region region;
    struct fgv_bells bells;    /* where region.guest_bell is not NULL */
    struct fgv_growth growth;  /* where region.window.bytes is not 0 */
    struct fgv_client *client; /* our entry */
    uint32_t index;
    uint32_t nr_responses;
    uint32_t nr_chunks;
    uint32_t chunk_bytes;
    struct fgv_producer producer;
    struct fgv_free_set free_responses;
    struct fgv_free_set free_chunks;
    struct fgv_response *responses;
    struct fgv_chunk *chunks;
    uint8_t *arena;
    uint64_t arena_offset;                                   /* in the region */
    uint64_t spin_ns;                                        /* at one go, at most */
    struct fgv_habit oversleep;                              /* of all threads */
    struct fgv_habit waits[FGV_MAX_RESPONSES][FGV_NR_WAITS]; /* of the thread that keeps the slot, by kinds of calls */
    struct fgv_habit chunk_waits[FGV_MAX_CHUNKS];
    struct fgv_facts facts;
    uint32_t nr_devices;                     /* that the program sees */
    uint32_t devices[FGV_FACTS_MAX_DEVICES]; /* ordinal in the program -> index in the facts, and on the wire */
};

/* Claims an entry, takes ring, responses and arena out of the heap, and greets the host. Any error has been told on
 * stderr. */
CUresult fgv_hello(struct fgv_guest *guest);

#endif
