/*
 * A kernel waits twice for its turn: for the kernels that this process launched before it on the device, then for those
 * of other processes. In a space kernels of different streams and processes run beside each other: it waits for a stand
 * of this process, then for the kernels of those who are not in the space.
 */
#include "code/turn.h"

#include "base/space.h"
#include "base/state.h"

/* Of this process, on each device. */
static struct {
    uint64_t nr_taken; /* first come, first served */
    uint64_t nr_served;
    bool is_used[SGP_NR_STANDS]; /* in a space */
} turns[SGP_MAX_DEVICES];

static void take_in_order(const struct sgp_device *device)
{
    uint64_t turn = turns[device->ordinal].nr_taken++;

    while (turns[device->ordinal].nr_served != turn) {
        sgp_wait();
    }
}

static int free_stand(const struct sgp_device *device)
{
    int stand = 0;

    while (stand < SGP_NR_STANDS && turns[device->ordinal].is_used[stand]) {
        stand++;
    }
    return stand;
}

static int take_stand(const struct sgp_device *device)
{
    int stand;

    while ((stand = free_stand(device)) == SGP_NR_STANDS) {
        sgp_wait();
    }
    turns[device->ordinal].is_used[stand] = true;
    return stand;
}

static uint32_t nr_fit(const struct sgp_grid *grid)
{
    return (uint32_t)(grid->max_resident / SGP_NR_MULTIPROCESSORS);
}

static uint64_t nr_blocks(const struct sgp_grid *grid)
{
    return (uint64_t)grid->grid[0] * grid->grid[1] * grid->grid[2];
}

void sgp_turn_take(struct sgp_turn *turn, struct sgp_device *device, struct sgp_grid *grid)
{
    turn->device = device;
    grid->stand = 0;
    grid->run = NULL;
    sgp_lock();
    if (sgp_space()->is_there) {
        grid->stand = take_stand(device);
        grid->run = &turn->run;
    } else {
        take_in_order(device);
    }
    sgp_unlock();
    if (grid->run) {
        sgp_run_begin(grid->run, device->state, nr_fit(grid), grid->is_cooperative ? nr_blocks(grid) : 0);
    } else {
        sgp_state_begin_kernel(device->state);
    }
}

CUresult sgp_turn_leave(struct sgp_turn *turn, const struct sgp_grid *grid, uint64_t busy_ns)
{
    const struct sgp_device *device = turn->device;
    CUresult failure = grid->run ? sgp_run_end(grid->run, busy_ns) : sgp_state_end_kernel(device->state, busy_ns);

    sgp_lock();
    if (grid->run) {
        turns[device->ordinal].is_used[grid->stand] = false;
    } else {
        turns[device->ordinal].nr_served++;
    }
    sgp_notify();
    sgp_unlock();
    return failure;
}
