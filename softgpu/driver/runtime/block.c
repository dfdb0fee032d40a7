/*
 * One block. Compiled code that never waits runs it in one call. Otherwise each thread is a fiber, and the lane runs
 * one of them until it waits or ends: the next is the one that has been ready longest; threads not yet started come
 * first, so that all reach a barrier before anybody passes it twice. A switch goes from fiber to fiber, home only when
 * nobody is ready.
 *
 * Wrong when: a thread waits for another one by reading memory in a loop. Fibers are not preempted.
 */
#include "lane.h"

#include <string.h>

static void team_thread_main(void *argument);

void sgp_thread_ready(struct sgp_lane *lane, struct sgp_thread *thread)
{
    thread->next = NULL;
    *lane->queue_last = thread;
    lane->queue_last = &thread->next;
}

/* Takes the next thread to run; NULL: nobody can. */
static struct sgp_thread *next_thread(struct sgp_lane *lane)
{
    struct sgp_team *team = lane->team;
    struct sgp_thread *thread;

    if (team->nr_started < team->nr_threads) {
        thread = &team->threads[team->nr_started++];
        thread->stack = lane->free_stacks[--lane->nr_free_stacks];
        thread->stack_pointer = sgp_fiber_prepare(thread->stack, team_thread_main, thread);
        return thread;
    }
    thread = lane->queue;
    if (thread) {
        lane->queue = thread->next;
        if (!lane->queue)
            lane->queue_last = &lane->queue;
    }
    return thread;
}

void sgp_thread_wait(struct sgp_thread *thread)
{
    struct sgp_lane *lane = thread->team->lane;
    struct sgp_thread *next = next_thread(lane);

    if (next == thread)
        return;
    lane->current = next;
    sgp_fiber_switch(&thread->stack_pointer, next ? next->stack_pointer : lane->home);
}

static void team_thread_main(void *argument)
{
    struct sgp_thread *self = argument;
    struct sgp_team *team = self->team;
    struct sgp_lane *lane = team->lane;
    struct sgp_thread *next;

    team->kernel->run_thread(&team->block, self, self->index);
    team->nr_alive--;
    team->warps[self->index / SGP_WARP_THREADS].alive &= ~(1u << self->index % SGP_WARP_THREADS);
    sgp_warp_thread_exited(team, self);
    sgp_barrier_thread_exited(team, self);
    next = next_thread(lane);
    if (lane->left_stack)
        lane->free_stacks[lane->nr_free_stacks++] = lane->left_stack;
    lane->left_stack = self->stack;
    lane->current = next;
    sgp_fiber_jump(next ? next->stack_pointer : lane->home);
}

uint32_t sgp_warp_size(const struct sgp_team *team, uint32_t warp)
{
    uint32_t rest = team->nr_threads - warp * SGP_WARP_THREADS;

    return rest < SGP_WARP_THREADS ? rest : SGP_WARP_THREADS;
}

/* What a block that ended well leaves behind, made ready for the next one; the rest is sgp_lane_prepare's. */
static void team_reset(struct sgp_lane *lane, uint32_t nr_threads)
{
    struct sgp_team *team = lane->team;
    uint32_t nr_warps = (nr_threads + SGP_WARP_THREADS - 1) / SGP_WARP_THREADS;

    team->nr_threads = nr_threads;
    team->nr_alive = nr_threads;
    team->nr_started = 0;
    team->active_barriers = 0;
    for (uint32_t i = 0; i < nr_warps; i++) {
        uint32_t size = sgp_warp_size(team, i);

        team->warps[i].alive = size == SGP_WARP_THREADS ? UINT32_MAX : (1u << size) - 1;
        team->warps[i].nr_groups = 0;
    }
    lane->queue = NULL;
    lane->queue_last = &lane->queue;
}

static CUresult run_fibers(struct sgp_lane *lane)
{
    struct sgp_team *team = lane->team;
    struct sgp_thread *first = next_thread(lane);

    lane->current = first;
    lane->is_in_kernel = true;
    sgp_fiber_switch(&lane->home, first->stack_pointer);
    lane->is_in_kernel = false;
    lane->current = NULL;
    if (lane->error)
        return lane->error;
    lane->free_stacks[lane->nr_free_stacks++] = lane->left_stack;
    lane->left_stack = NULL;
    if (!team->nr_alive)
        return CUDA_SUCCESS;
    /* On a GPU this hangs for ever. */
    sgp_log("kernel", "%s: %u threads of block %u,%u,%u wait for others that will not come", team->kernel->name,
            team->nr_alive, team->block.block_index[0], team->block.block_index[1], team->block.block_index[2]);
    return CUDA_ERROR_LAUNCH_FAILED;
}

static void whole_block_main(void *argument)
{
    struct sgp_lane *lane = argument;
    struct sgp_team *team = lane->team;

    team->kernel->run_block(&team->block, &team->threads[0]);
    sgp_fiber_jump(lane->home);
}

static CUresult run_whole(struct sgp_lane *lane)
{
    void *start = sgp_fiber_prepare(lane->block_stack + SGP_BLOCK_STACK_BYTES, whole_block_main, lane);

    lane->current = &lane->team->threads[0];
    lane->is_in_kernel = true;
    sgp_fiber_switch(&lane->home, start);
    lane->is_in_kernel = false;
    lane->current = NULL;
    return lane->error;
}

CUresult sgp_block_run(struct sgp_lane *lane, struct sgp_grid *grid, uint64_t number)
{
    const struct sgp_kernel *kernel = grid->kernel;
    struct sgp_block *block = &lane->team->block;

    *block = (struct sgp_block){
        .runtime = &sgp_runtime_table,
        .parameters = grid->parameters,
        .globals = grid->globals,
        .shared = sgp_lane_shared(lane, kernel->static_shared_bytes + grid->dynamic_shared_bytes),
        .dynamic_shared_bytes = grid->dynamic_shared_bytes,
        .multiprocessor = lane->index % SGP_NR_MULTIPROCESSORS,
    };
    memcpy(block->grid, grid->grid, sizeof(block->grid));
    memcpy(block->block_dim, grid->block_dim, sizeof(block->block_dim));
    block->block_index[0] = (uint32_t)(number % grid->grid[0]);
    block->block_index[1] = (uint32_t)(number / grid->grid[0] % grid->grid[1]);
    block->block_index[2] = (uint32_t)(number / grid->grid[0] / grid->grid[1]);
    team_reset(lane, kernel->needs_threads ? grid->block_dim[0] * grid->block_dim[1] * grid->block_dim[2] : 1);
    return kernel->needs_threads ? run_fibers(lane) : run_whole(lane);
}
