/*
 * Blocks that wait for other blocks: a runner keeps several of them, and lets them go on in turn whenever the one that
 * runs only spins. It begins another one when those it has get nowhere for some rounds, so that a launch whose blocks
 * wait for earlier ones alone (a look-back scan) never has many; in a cooperative launch at once, as there all must
 * meet.
 *
 * Blocks begin in the order of their numbers, and as many can be resident as the device says of itself. A block that
 * waits for one that does not fit waits for ever, as on a GPU.
 */
#include <sched.h>

#include "base/futex.h"
#include "runtime/records.h"

#define PATIENCE_ROUNDS 4u
#define MAX_NAP_NS      1000000u /* as PTX has it */

/* A block begins as a whole, with its room and its number: so no room is held for one that is not to come. */
static pthread_mutex_t beginnings = PTHREAD_MUTEX_INITIALIZER;

/* Room for a block among the resident ones, a team that is ready for it, and in a space its place. NULL: none to have.
 */
static struct sgp_team *room_take(struct sgp_grid *grid, struct sgp_runner *runner, uint32_t nr_resident)
{
    struct sgp_team *team = NULL;

    if (__atomic_fetch_add(&grid->nr_resident, 1, __ATOMIC_RELAXED) < grid->max_resident) {
        team = sgp_runner_team(runner, nr_resident);
        if (!team) {
            runner->error = CUDA_ERROR_OUT_OF_MEMORY;
            sgp_block_fail(runner->teams[0], grid);
        } else if (sgp_place_try(grid, runner, team)) {
            return team;
        }
    }
    __atomic_fetch_sub(&grid->nr_resident, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* With the lock of beginnings. Adds a block to the runner's; false: none was added. */
static bool block_add(struct sgp_grid *grid, struct sgp_runner *runner, uint32_t nr_resident)
{
    struct sgp_team *team;

    if (grid->next_block >= grid->nr_blocks) {
        sgp_place_give_up(grid, runner);
        return false;
    }
    team = nr_resident < SGP_MAX_RESIDENT_BLOCKS ? room_take(grid, runner, nr_resident) : NULL;
    if (!team) {
        return false;
    }
    sgp_block_begin(team, grid, __atomic_fetch_add(&grid->next_block, 1, __ATOMIC_RELAXED));
    return true;
}

static bool block_begin(struct sgp_grid *grid, struct sgp_runner *runner, uint32_t nr_resident)
{
    bool has_begun;

    /* Most rounds of most kernels end here. */
    if (__atomic_load_n(&grid->next_block, __ATOMIC_RELAXED) >= grid->nr_blocks && !runner->waits) {
        return false;
    }
    pthread_mutex_lock(&beginnings);
    has_begun = block_add(grid, runner, nr_resident);
    pthread_mutex_unlock(&beginnings);
    return has_begun;
}

/* After the end of a block, whose team has become the first free one. In a space the next one takes its place at once.
 */
static bool block_follow(struct sgp_grid *grid, struct sgp_runner *runner, uint32_t nr_resident)
{
    struct sgp_team *team = runner->teams[nr_resident];
    bool has_begun;

    __atomic_fetch_sub(&grid->nr_resident, 1, __ATOMIC_RELAXED);
    has_begun = team->multiprocessor != SGP_NO_PLACE && block_begin(grid, runner, nr_resident);
    if (!has_begun) {
        sgp_place_leave(grid, team);
    }
    return has_begun;
}

static void swap_teams(struct sgp_runner *runner, uint32_t a, uint32_t b)
{
    struct sgp_team *team = runner->teams[a];

    runner->teams[a] = runner->teams[b];
    runner->teams[b] = team;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* All that runs here only spins. A kernel whose threads sleep meanwhile, as those do that poll politely, leaves the CPU
 * for as long; one whose threads do not, for a moment. */
static void leave_cpu(uint32_t nap_ns)
{
    if (nap_ns) {
        sgp_futex_nap(nap_ns);
    } else {
        sched_yield();
    }
}

/* The runner's first nr_resident teams run. Until no block is left or one fails, here or in another runner. */
void sgp_resident_run(struct sgp_grid *grid, struct sgp_runner *runner)
{
    uint32_t nr_resident = 0, at = 0, nr_spun = 0, nap_ns = MAX_NAP_NS;

    while (!__atomic_load_n(&grid->error, __ATOMIC_RELAXED)) {
        uint32_t patience = grid->is_cooperative ? 0 : PATIENCE_ROUNDS * nr_resident;
        enum sgp_progress progress;

        if (!nr_resident || (nr_spun && nr_spun >= patience)) {
            if (block_begin(grid, runner, nr_resident)) {
                at = nr_resident++;
                nr_spun = 0;
            } else if (!nr_resident && !runner->waits) {
                return;
            } else if (!nr_resident) {
                sgp_futex_nap(SGP_RUN_LOOK_NS);
                continue;
            } else if (nr_spun >= nr_resident) {
                leave_cpu(nap_ns);
                nr_spun = 0;
                nap_ns = MAX_NAP_NS;
            }
        }
        progress = sgp_block_go_on(runner->teams[at]);
        if (progress == SGP_FAILED) {
            sgp_block_fail(runner->teams[at], grid);
            return;
        }
        nr_spun++;
        if (progress == SGP_ENDED) {
            swap_teams(runner, at, --nr_resident);
            nr_resident += block_follow(grid, runner, nr_resident);
            nr_spun = 0;
            nap_ns = MAX_NAP_NS;
        } else {
            nap_ns = least(nap_ns, runner->teams[at++]->nap_ns);
        }
        if (at >= nr_resident) {
            at = 0;
        }
    }
}
