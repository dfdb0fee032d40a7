/*
 * This process as a client of the region: mapped and greeted at cuInit, served once the worker has answered.
 *
 * Memory of a lost client is not given back before the program ends: threads may still write to the ring, and the
 * program to its pinned memory, while another program of this machine would already own the pages.
 */
#ifndef FRONTEND_GUEST_CLIENT_H
#define FRONTEND_GUEST_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bell.h"
#include "cuda_api/facts.h"
#include "cuda_api/types.h"
#include "growth.h"
#include "ivshmem/region.h"
#include "ivshmem/response.h"
#include "ivshmem/ring.h"

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
    struct fgv_pool free_responses;
    struct fgv_pool free_chunks;
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
extern struct fgv_guest fgv_guest;

/*
 * How far this process has come. It lies in a page that a forked child finds zeroed, so that what is true of the
 * process that opened the region is never true of its child.
 */
enum fgv_gate { FGV_GATE_CLOSED = 0, FGV_GATE_OPEN = 1, FGV_GATE_SERVED = 2, FGV_GATE_LOST = 3, FGV_GATE_ENDING = 4 };
extern _Atomic uint32_t *fgv_gate;

/* cuInit. May be called again after a failure, and by several threads. */
CUresult fgv_client_open(void);
/* Whether cuInit succeeded in this process: CUDA_SUCCESS, or what calls give that need no worker. */
CUresult fgv_client_is_open(void);
/* Waits until the worker serves this client. CUDA_SUCCESS, or what every further call gives. */
CUresult fgv_client_await(void);

/* True while somebody may still answer; for fgv_slot_wait and the ring. */
bool fgv_client_keep_waiting(void *unused, uint32_t nr_rounds);
/* Nobody will answer any more: says so once and returns what this call and all further ones give. */
CUresult fgv_client_lost(void);

#endif
