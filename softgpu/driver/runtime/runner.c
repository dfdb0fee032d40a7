/*
 * A runner: one flow of this process that runs blocks, with a stack for calls that run a whole block at once, and the
 * way home from a block that failed. What blocks need of their own is team.c's.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/reach.h"
#include "runtime/records.h"

#define NR_TEAMS_KEPT 8u

__thread struct sgp_runner *sgp_runner_current __attribute__((tls_model("initial-exec")));

static struct sgp_runner *free_runners;
static uint32_t nr_runners;
static pthread_mutex_t lanes_lock = PTHREAD_MUTEX_INITIALIZER;

static struct sgp_runner *runner_new(void)
{
    struct sgp_runner *runner = calloc(1, sizeof(*runner));
    uint64_t bytes = SGP_PAGE_BYTES + SGP_BLOCK_STACK_BYTES;
    uint8_t *mapping;

    if (!runner) {
        return NULL;
    }
    mapping = sgp_reach_map(bytes, PROT_NONE, MAP_NORESERVE);
    if (!mapping) {
        goto failed;
    }
    runner->block_stack = mapping + SGP_PAGE_BYTES;
    if (mprotect(runner->block_stack, SGP_BLOCK_STACK_BYTES, PROT_READ | PROT_WRITE)) {
        sgp_reach_unmap(mapping, bytes);
        goto failed;
    }
    return runner;
failed:
    free(runner);
    return NULL;
}

/* A launch that failed has left them. */
static void places_forget(struct sgp_runner *runner)
{
    runner->waits = false;
    for (uint32_t i = 0; i < runner->nr_teams; i++) {
        runner->teams[i]->multiprocessor = SGP_NO_PLACE;
    }
}

struct sgp_runner *sgp_runner_take(void)
{
    struct sgp_runner *runner;

    pthread_mutex_lock(&lanes_lock);
    runner = free_runners;
    if (runner) {
        free_runners = runner->next_free;
    } else {
        runner = runner_new();
        if (runner) {
            runner->index = nr_runners++;
        }
    }
    pthread_mutex_unlock(&lanes_lock);
    if (runner) {
        places_forget(runner);
    }
    return runner;
}

void sgp_runner_give(struct sgp_runner *runner)
{
    while (runner->nr_teams > NR_TEAMS_KEPT) {
        sgp_team_delete(runner->teams[--runner->nr_teams]);
    }
    pthread_mutex_lock(&lanes_lock);
    runner->next_free = free_runners;
    free_runners = runner;
    pthread_mutex_unlock(&lanes_lock);
}

struct sgp_team *sgp_runner_team(struct sgp_runner *runner, uint32_t number)
{
    if (number == runner->nr_teams) {
        runner->teams[number] = sgp_team_new(runner);
        if (!runner->teams[number]) {
            return NULL;
        }
        runner->nr_teams++;
    }
    return sgp_team_prepare(runner->teams[number], runner->grid) ? runner->teams[number] : NULL;
}

void sgp_runner_abandon(struct sgp_runner *runner, CUresult error)
{
    runner->error = error;
    runner->is_in_kernel = false;
    sgp_fiber_jump(runner->home);
}
