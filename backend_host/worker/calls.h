/* What the handlers of calls keep of their client: data of this floor. */
#ifndef BACKEND_HOST_CALLS_H
#define BACKEND_HOST_CALLS_H

#include "host_function.h"
#include "pool.h"
#include "ranges.h"
#include "state.h"

#define FGV_BLOB_BYTES    (UINT64_C(2) << 30) /* module images on their way, all together */
#define FGV_MAX_BLOBS     64u
#define FGV_NODE_BYTES    16u                 /* of a node and its edge data in a chunk */
#define FGV_MAX_LINKS     16u                 /* not destroyed: each holds its logs, and in the driver its inputs */
#define FGV_ADDRESS_BYTES (UINT64_C(1) << 46) /* that one client may reserve: half of what a process has */

#define FGV_MAX_RANGES        65536u /* registered host memory */
#define FGV_MAX_DEVICE_RANGES (1u << 20)
#define FGV_MAX_RESERVATIONS  4096u

struct fgv_blob {
    uint64_t number;
    uint8_t *bytes;
    uint64_t size_bytes;
    uint64_t filled_bytes;
};

/* Of graph_memory.c. */
struct fgv_graph_need;
struct fgv_graph_memory {
    struct fgv_graph_need *needs; /* of instantiated graphs that allocate */
    uint64_t charged_bytes;       /* to the quota */
    uint64_t nr_trims;
};

struct fgv_calls {
    uint64_t last_number; /* of a graph or node */
    struct fgv_blob blobs[FGV_MAX_BLOBS];
    uint64_t blob_bytes;
    uint32_t nr_links;
    struct fgv_ranges pinned;
    struct fgv_ranges allocated;
    struct fgv_ranges reserved; /* addresses without memory */
    struct fgv_ranges mapped;   /* physical memory at such addresses */
    uint64_t reserved_bytes;
    struct fgv_memory_pools pools;
    struct fgv_graph_memory graph_memory;
    bool is_pinning_refused; /* the device library cannot; said once */
    bool is_pinned;
    struct fgv_hosts hosts;
};

#endif
