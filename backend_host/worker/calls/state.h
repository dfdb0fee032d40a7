/* What the handlers of calls keep of their client: data of this floor. */
#ifndef BACKEND_HOST_CALLS_STATE_H
#define BACKEND_HOST_CALLS_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "calls/pool_blocks.h"
#include "client/ranges.h"
#include "client/state.h"
#include "track/state.h"

#define FGW_MAX_BLOBS     64u
#define FGW_NODE_BYTES    16u                 /* of a node and its edge data in a chunk */
#define FGW_MAX_LINKS     16u                 /* not destroyed: each holds its logs, and in the driver its inputs */
#define FGW_ADDRESS_BYTES (UINT64_C(1) << 46) /* that one client may reserve: half of what a process has */

#define FGW_SPAN_MOST_BYTES (UINT64_C(1) << 40)

#define FGW_MAX_RANGES        65536u /* registered host memory */
#define FGW_MAX_DEVICE_RANGES (1u << 20)
#define FGW_MAX_RESERVATIONS  4096u
#define FGW_MAX_EXPORTS       512u /* allocations on the shelf: each has a descriptor in the daemon, at least */
#define FGW_MAX_IMPORTS       512u

struct fgw_blob {
    uint64_t number;
    uint8_t *bytes;
    uint64_t size_bytes;
    uint64_t filled_bytes;
};

/* Of graph_memory.c. */
struct fgw_graph_need;
struct fgw_graph_memory {
    struct fgw_graph_need *needs; /* of instantiated graphs that allocate */
    uint64_t counted_bytes;       /* to the quota */
    uint64_t placed_bytes;        /* that the device was last seen to have for them */
    uint64_t nr_trims;
};

/* Of image_memory.c. */
struct fgw_image_memory {
    fgw_needs_fn needs;
    uint64_t module_bytes;
    uint64_t library_bytes; /* in one context */
    uint64_t counted_bytes; /* to the quota */
};

/* Of bound.c. */
#define FGW_NR_BOUND_BY_IMAGES 5u
struct fgw_ticket;
struct fgw_bounds {
    fgw_binds_fn binds;
    struct fgw_ticket *tickets;                 /* of images that are being looked into */
    uint32_t nr_images[FGW_NR_BOUND_BY_IMAGES]; /* that have this bit of enum fgw_bound */
    uint32_t nr_managed;                        /* modules and libraries that have managed variables */
};

enum fgw_host_stage {
    FGW_HOST_FREE = 0,
    FGW_HOST_SUBMITTED, /* the stream has not come to it */
    FGW_HOST_RUNNING,   /* a thread of the driver's waits for the guest */
    FGW_HOST_RETURNED,  /* ... for the grant */
    FGW_HOST_RELEASED,  /* ... for nothing any more */
    FGW_HOST_FINISHED,  /* the driver's thread has left */
};

struct fgw_host {
    _Atomic uint32_t state;    /* also the futex that the driver's thread sleeps on */
    atomic_bool is_let_go;     /* its context goes: nobody waits for the guest any more */
    uint64_t function;         /* the guest's number */
    struct fgw_behind *behind; /* what stands behind it; NULL: it was never submitted */
    struct fgw_context *context;
};

struct fgw_hosts {
    struct fgw_host items[FGW_MAX_BEHIND]; /* in the driver's streams at once; further ones wait in the backlog */
    _Atomic int32_t mailbox;               /* response slot, -1: none */
    pthread_mutex_t posting;               /* of the driver's threads: one function at a time */
    atomic_bool is_ending;
    atomic_bool are_nodes_let_go; /* a context goes */
    atomic_uint nr_rounds;        /* of the worker's loop */
};

#define FGW_POOL_NR_REUSES 3u

struct fgw_memory_pool {
    struct fgw_memory_pool *next;
    struct fgw_blocks blocks;
    uint64_t max_bytes;       /* that may be allocated from it at a time */
    uint64_t threshold_bytes; /* that it keeps when all work is over */
    uint64_t live_bytes;      /* that the client has allocated and not freed */
    uint64_t placed_bytes;    /* that cannot leave the device, as last counted */
    uint64_t used_high_bytes, reserved_high_bytes;
    uint32_t reuse[FGW_POOL_NR_REUSES]; /* what the client allows: nothing follows from it but for the answer */
    uint32_t nr_live;
    bool is_shareable; /* it grows by pieces, which other programs can have */
    bool is_destroyed; /* by the client; goes with its last allocation */
};

struct fgw_memory_pools {
    struct fgw_memory_pool *first;
    struct fgw_memory_pool *by_default; /* the device's, once it was asked for */
    uint64_t counted_bytes;             /* of all of them, to the quota */
    uint32_t nr;
};

/* Of span.c. */
struct fgw_span {
    bool is_wanted;
    uint64_t address, bytes; /* none: 0 */
    struct fgw_ranges taken;
    struct fgw_ranges extents; /* memory at such addresses; without a handle it is not on the device */
    uint32_t nr_out;           /* of the extents */
};

/* Of swap.c. */
#define FGW_MAX_MOVES 4u
struct fgw_move {
    uint64_t address;
    CUevent end;      /* of its copies, or of its prints first */
    bool is_printing; /* what it has to copy is not known yet */
    bool is_printed;  /* it has prints */
    bool has_failed;  /* the driver took no copy of it */
    uint32_t place;   /* of its prints */
    uint64_t copied_bytes;
};

struct fgw_swap_memory;
struct fgw_swap {
    struct fgw_ranges copies; /* of extents, in memory of this process: the owner is what is known of one */
    struct fgw_swap_memory *memory;
    uint64_t prepared_ns;
    struct fgw_move moves[FGW_MAX_MOVES];
    uint32_t nr_moves;
    uint32_t nr_begun;
    bool is_inward;
    CUstream stream, print_stream; /* while there are moves */
    uint64_t tried_ns;             /* when the host or the driver last said no; 0: it did not */
};

/* Of exports.c and sharing.c. */
struct fgw_sharing {
    struct fgw_export {
        uint64_t name; /* the address of an allocation or of a pool's piece, or the number of physical memory */
        struct fgw_key key;
        bool is_gone; /* and the daemon has not been told */
    } exports[FGW_MAX_EXPORTS];
    struct fgw_import {
        uint64_t address, bytes;
        struct fgw_key key;
        const struct fgw_context *context; /* that it goes with */
    } imports[FGW_MAX_IMPORTS];
    uint32_t nr_exports, nr_imports;
    bool is_asking;
    struct fgw_key asked; /* what the daemon is looking for */
    uint64_t asked_ns;    /* when it was last asked for anything */
};

/* Of space.c. */
struct fgw_in_space {
    fgw_nests_fn nests; /* NULL: it is in none */
    bool has_refused;   /* an image, which was said */
};

/* Of lack.c. */
struct fgw_lack {
    bool may_wait;  /* the request at hand, for room on the device */
    uint64_t bytes; /* that it waits for */
};

struct fgw_calls {
    uint64_t last_number; /* of a graph or node */
    struct fgw_blob blobs[FGW_MAX_BLOBS];
    uint64_t kept_bytes; /* of images that were loaded, for saving what was made of them */
    uint64_t nr_images;  /* that were kept, ever */
    uint64_t most_kept_bytes;
    uint32_t nr_links;
    struct fgw_ranges pinned;
    struct fgw_ranges allocated;
    struct fgw_ranges reserved; /* addresses without memory */
    struct fgw_ranges mapped;   /* physical memory at such addresses */
    struct fgw_ranges placed;   /* the heap's pages at such addresses; the owner is where the heap has them */
    uint64_t reserved_bytes;
    uint64_t promised_bytes; /* of physical memory that there is none of yet */
    struct fgw_lack lack;
    struct fgw_span span;
    struct fgw_swap swap;
    struct fgw_sharing sharing;
    struct fgw_memory_pools pools;
    struct fgw_graph_memory graph_memory;
    struct fgw_image_memory image_memory;
    struct fgw_bounds bounds;
    struct fgw_in_space space;
    bool is_pinning_refused;             /* the device library cannot; said once */
    bool is_pinned;                      /* the arena */
    const struct fgw_context *pinned_in; /* then: this context */
    struct fgw_hosts hosts;
    bool is_eager;    /* libraries are loaded into each context that is made: eager.h */
    bool has_staging; /* a node has staged a copy, ever: staging.h */
};

#endif
