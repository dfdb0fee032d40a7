/*
 * Running kernels. A launch is a grid of blocks; runners (one thread of this process each) take blocks until there are
 * none left. In a runner a block is one call of compiled code, or, when its threads wait for each other, one fiber for
 * each of its threads.
 *
 *     grid.c      the blocks of a launch over the runners       runner.c      a runner; leaving a faulty block
 *     team.c      a running block's stacks and shared memory    block.c     its begin and its end
 *     resident.c  blocks that wait for each other               barrier.c   bar.sync and its kin
 *     warp.c      vote, shfl, match, activemask                 fault.c     signals of kernels
 *     thread.c    which of a block's fibers runs next           format.c    text of printf
 *     services.c  the table that compiled code calls
 *     texture.c   tex, tld4, txq, suq                           surface.c   suld, sust, sured
 *     matrix.c    mma, wmma                     matrix_move.c  ldmatrix and its kin
 *     places.c    multiprocessors with room for blocks
 *     direct.c    kernels in this process                       wall.c      kernels in a process of their own
 *     inside.c    that process                                  confine.c   what it can still do
 */
#ifndef SOFTGPU_RUNTIME_H
#define SOFTGPU_RUNTIME_H

#include "base/driver.h"
#include "base/run.h"
#include "kernel_abi.h"

/* Launches of one process that run at once on a device, in a space. */
#define SGP_NR_STANDS 8

struct sgp_grid;

/* What kernels ask of the driver while they run. In any thread, without the lock. */
struct sgp_services {
    void (*print)(struct sgp_grid *grid, const char *text, size_t bytes);
    void *(*allocate)(struct sgp_grid *grid, uint64_t bytes);               /* NULL: no memory */
    bool (*free)(struct sgp_grid *grid, void *pointer);                     /* false: it is not the kernel's to free */
    uint32_t (*place)(struct sgp_grid *grid, uint32_t left, uint32_t wish); /* sgp_run_place() */
};

/* Graphs that kernels of a graph launch are run once those kernels have ended. The streams are the CUDA runtime's
 * cudaStreamGraphTailLaunch, ...FireAndForget, ...FireAndForgetAsSibling. */
#define SGP_MAX_ORDERS            255u
#define SGP_ERROR_TOO_MANY_ORDERS 69u /* cudaErrorLaunchPendingCountExceeded */
#define SGP_ORDER_TAIL            UINT64_C(0x0100000000000000)
#define SGP_ORDER_CHILD           UINT64_C(0x0200000000000000)
#define SGP_ORDER_SIBLING         UINT64_C(0x0300000000000000)

struct sgp_order {
    uint64_t graph, stream;
};

/* In device memory: kernels write it. */
struct sgp_orders {
    uint64_t graph; /* the one that runs, as its kernels know it; 0: they may not launch it */
    uint32_t nr;    /* atomic; it counts those too for which there was no place */
    uint32_t reserved;
    struct sgp_order orders[SGP_MAX_ORDERS];
};

/* One launch. Filled by launch.c. */
struct sgp_grid {
    const struct sgp_kernel *kernel;
    struct CUctx_st *context;
    const void *parameters; /* of the kernel's parameters_bytes */
    uint8_t *globals;
    uint32_t grid[3];
    uint32_t block_dim[3];
    uint32_t dynamic_shared_bytes;
    uint64_t stack_bytes;
    struct sgp_orders *orders; /* NULL: no graph runs the kernel, or it knows of none */
    bool is_cooperative;       /* all blocks are resident together */
    uint64_t max_resident;     /* blocks that the device holds at once */
    struct sgp_run *run;       /* in a space, else NULL; in the kernels' process it only says that there is one */
    int stand;                 /* which of those that this process runs at once on the device; 0 outside of spaces */
    /* the runtime's own */
    const struct sgp_services *services;
    const void *workspace;             /* what cooperative groups keep for the grid; NULL unless it is cooperative */
    const struct sgp_runtime *runtime; /* what compiled code may call */
    uint64_t nr_blocks;
    uint64_t chunk;
    uint64_t next_block;  /* atomic */
    uint64_t nr_resident; /* atomic, of kernels that spin */
    uint32_t error;       /* atomic: CUresult of the first block that failed */
};

/* What kernels of the device read beside the program's memory. False: no memory. */
bool sgp_launch_area_map(int device);

/* Whether the wall (view.h) was asked for and is not to be had: no process, or none that gives up what it must. With
 * the lock. */
bool sgp_wall_is_missing(void);

/* Runs a launch, in this process or behind the wall (view.h); CUDA_SUCCESS or what ended it. Without the lock, and one
 * launch of a device's stand at a time. */
CUresult sgp_launch_run(struct sgp_grid *grid);

#endif
