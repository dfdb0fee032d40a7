/* One block. Compiled code that never waits runs it in one call. Otherwise each thread is a fiber (thread.c). */
#include <string.h>

#include "runtime/records.h"

static void thread_main(void *argument)
{
    struct sgp_thread *self = argument;
    struct sgp_team *team = self->team;
    struct sgp_thread *next;

    team->kernel->run_thread(&team->block, self, self->index);
    team->nr_alive--;
    team->warps[self->index / SGP_WARP_THREADS].alive &= ~(1u << self->index % SGP_WARP_THREADS);
    sgp_warp_thread_exited(team, self);
    sgp_barrier_thread_exited(team, self);
    next = sgp_thread_next(team);
    if (team->left_stack) {
        team->free_stacks[team->nr_free_stacks++] = team->left_stack;
    }
    team->left_stack = self->stack;
    sgp_fiber_jump(next ? next->stack_pointer : team->runner->home);
}

/* What a block that ended well leaves behind, made ready for the next one; the rest is sgp_team_prepare's. */
static void team_reset(struct sgp_team *team, uint32_t nr_threads)
{
    uint32_t nr_warps = (nr_threads + SGP_WARP_THREADS - 1) / SGP_WARP_THREADS;

    team->thread_main = thread_main;
    team->nr_threads = nr_threads;
    team->nr_alive = nr_threads;
    team->nr_started = 0;
    team->nr_yields = 0;
    team->active_barriers = 0;
    for (uint32_t i = 0; i < nr_warps; i++) {
        uint32_t size = sgp_warp_size(team, i);

        team->warps[i].alive = size == SGP_WARP_THREADS ? UINT32_MAX : (1u << size) - 1;
        team->warps[i].nr_groups = 0;
    }
    team->queue = NULL;
    team->queue_last = &team->queue;
}

static void fibers_run(struct sgp_team *team)
{
    struct sgp_runner *runner = team->runner;
    struct sgp_thread *first = sgp_thread_next(team);

    runner->is_in_kernel = true;
    sgp_fiber_switch(&runner->home, first->stack_pointer);
    runner->is_in_kernel = false;
}

static enum sgp_progress fibers_go_on(struct sgp_team *team)
{
    struct sgp_runner *runner = team->runner;

    team->nap_ns = UINT32_MAX;
    fibers_run(team);
    if (runner->error) {
        return SGP_FAILED;
    }
    if (team->left_stack) {
        team->free_stacks[team->nr_free_stacks++] = team->left_stack;
    }
    team->left_stack = NULL;
    if (!team->nr_alive) {
        return SGP_ENDED;
    }
    if (team->queue || team->nr_started < team->nr_threads) {
        return SGP_SPINS;
    }
    /* On a GPU this hangs for ever. */
    sgp_log("kernel", "%s: %u threads of block %u,%u,%u wait for others that will not come", team->kernel->name,
            team->nr_alive, team->block.block_index[0], team->block.block_index[1], team->block.block_index[2]);
    runner->error = CUDA_ERROR_LAUNCH_FAILED;
    return SGP_FAILED;
}

static void whole_block_main(void *argument)
{
    struct sgp_team *team = argument;

    team->kernel->run_block(&team->block, &team->threads[0]);
    sgp_fiber_jump(team->runner->home);
}

static enum sgp_progress whole_run(struct sgp_team *team)
{
    struct sgp_runner *runner = team->runner;
    void *start = sgp_fiber_prepare(runner->block_stack + SGP_BLOCK_STACK_BYTES, whole_block_main, team);

    runner->is_in_kernel = true;
    sgp_fiber_switch(&runner->home, start);
    runner->is_in_kernel = false;
    return runner->error ? SGP_FAILED : SGP_ENDED;
}

void sgp_block_begin(struct sgp_team *team, struct sgp_grid *grid, uint64_t number)
{
    const struct sgp_kernel *kernel = grid->kernel;
    struct sgp_block *block = &team->block;

    *block = (struct sgp_block){
        .runtime = grid->runtime,
        .parameters = grid->parameters,
        .globals = grid->globals,
        .shared = sgp_team_shared(team, kernel->static_shared_bytes + grid->dynamic_shared_bytes),
        .dynamic_shared_bytes = grid->dynamic_shared_bytes,
        .multiprocessor = grid->run ? team->multiprocessor : team->runner->index % SGP_NR_MULTIPROCESSORS,
        .nr_multiprocessors = SGP_NR_MULTIPROCESSORS,
        .grid_workspace = grid->workspace,
        .context = team->context,
    };
    memcpy(block->grid, grid->grid, sizeof(block->grid));
    memcpy(block->block_dim, grid->block_dim, sizeof(block->block_dim));
    block->block_index[0] = (uint32_t)(number % grid->grid[0]);
    block->block_index[1] = (uint32_t)(number / grid->grid[0] % grid->grid[1]);
    block->block_index[2] = (uint32_t)(number / grid->grid[0] / grid->grid[1]);
    team_reset(team, kernel->needs_threads ? grid->block_dim[0] * grid->block_dim[1] * grid->block_dim[2] : 1);
}

enum sgp_progress sgp_block_go_on(struct sgp_team *team)
{
    return team->kernel->needs_threads ? fibers_go_on(team) : whole_run(team);
}

void sgp_block_fail(const struct sgp_team *team, struct sgp_grid *grid)
{
    const struct sgp_runner *runner = team->runner;
    const uint32_t *index = team->block.block_index;
    uint32_t none = CUDA_SUCCESS;

    if (runner->error == CUDA_ERROR_ILLEGAL_ADDRESS && runner->fault_address) {
        sgp_log("kernel", "%s: block %u,%u,%u used address %p", grid->kernel->name, index[0], index[1], index[2],
                runner->fault_address);
    } else if (runner->error == CUDA_ERROR_ILLEGAL_ADDRESS) {
        sgp_log("kernel", "%s: block %u,%u,%u used memory that is not the device's", grid->kernel->name, index[0],
                index[1], index[2]);
    }
    __atomic_compare_exchange_n(&grid->error, &none, runner->error, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
