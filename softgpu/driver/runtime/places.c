/*
 * Places of blocks, in a space: a block begins once it has one (base/run.h). Behind the wall they are asked for: what
 * the device's file says cannot be reached from there. A runner that runs block after block keeps its place, and asks
 * again every 0.1 ms whether somebody comes before; so short blocks cost no question each.
 *
 * As long as a launch has blocks that have not begun, the place of one that ends is given back only in exchange for the
 * next one's: who comes after would get it in between.
 *
 * Outside of spaces a runner is a multiprocessor.
 */
#include "base/futex.h"
#include "runtime/records.h"

static bool has_just_asked(const struct sgp_runner *runner)
{
    return sgp_now_ns() - runner->asked_ns < SGP_RUN_LOOK_NS;
}

static bool ask(struct sgp_grid *grid, struct sgp_runner *runner, struct sgp_team *team)
{
    const uint32_t wish = SGP_PLACE_WANTED | (runner->waits ? SGP_PLACE_WAITED : 0);

    team->multiprocessor = grid->services->place(grid, team->multiprocessor, wish);
    runner->waits = team->multiprocessor == SGP_NO_PLACE;
    runner->asked_ns = sgp_now_ns();
    return !runner->waits;
}

bool sgp_place_try(struct sgp_grid *grid, struct sgp_runner *runner, struct sgp_team *team)
{
    if (!grid->run) {
        return true;
    }
    if (has_just_asked(runner) && runner->waits == (team->multiprocessor == SGP_NO_PLACE)) {
        return !runner->waits; /* it would be told the same */
    }
    return ask(grid, runner, team);
}

static bool is_over(const struct sgp_grid *grid, bool has_block)
{
    return __atomic_load_n(&grid->error, __ATOMIC_RELAXED) ||
           (!has_block && __atomic_load_n(&grid->next_block, __ATOMIC_RELAXED) >= grid->nr_blocks);
}

bool sgp_place_keep(struct sgp_grid *grid, struct sgp_runner *runner, struct sgp_team *team, bool has_block)
{
    if (!grid->run || (team->multiprocessor != SGP_NO_PLACE && has_just_asked(runner))) {
        return true;
    }
    while (!ask(grid, runner, team)) {
        if (is_over(grid, has_block)) {
            sgp_place_give_up(grid, runner);
            return false;
        }
        sgp_futex_nap(SGP_RUN_LOOK_NS);
    }
    return true;
}

void sgp_place_leave(struct sgp_grid *grid, struct sgp_team *team)
{
    if (grid->run && team->multiprocessor != SGP_NO_PLACE) {
        team->multiprocessor = grid->services->place(grid, team->multiprocessor, 0);
    }
}

void sgp_place_give_up(struct sgp_grid *grid, struct sgp_runner *runner)
{
    if (runner->waits) {
        grid->services->place(grid, SGP_NO_PLACE, SGP_PLACE_WAITED);
        runner->waits = false;
    }
}
