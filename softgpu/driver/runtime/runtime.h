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
 */
#ifndef SOFTGPU_RUNTIME_H
#define SOFTGPU_RUNTIME_H

#include "base/driver.h"
#include "kernel_abi.h"

/* One launch. Filled by launch.c. */
struct sgp_grid {
    const struct sgp_kernel *kernel;
    struct CUctx_st *context;
    const void *parameters;
    uint8_t *globals;
    uint32_t grid[3];
    uint32_t block_dim[3];
    uint32_t dynamic_shared_bytes;
    uint64_t stack_bytes;
    bool is_cooperative;   /* all blocks are resident together */
    uint64_t max_resident; /* blocks that the device holds at once */
    const void *workspace; /* what cooperative groups keep for the grid; NULL unless it is cooperative */
    /* grid.c's own */
    const struct sgp_runtime *runtime; /* what compiled code may call */
    uint64_t nr_blocks;
    uint64_t chunk;
    uint64_t next_block;  /* atomic */
    uint64_t nr_resident; /* atomic, of kernels that spin */
    uint32_t error;       /* atomic: CUresult of the first block that failed */
};

/* Runs all blocks; CUDA_SUCCESS or what ended the launch. Without the lock. */
CUresult sgp_grid_run(struct sgp_grid *grid);

#endif
