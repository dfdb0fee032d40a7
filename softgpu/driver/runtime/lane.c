/*
 * A lane: one flow of this process that runs blocks, with a stack for calls that run a whole block at once, and the way
 * home from a block that failed. What blocks need of their own is team.c's.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/reach.h"
#include "runtime/records.h"

#define NR_TEAMS_KEPT 8u

__thread struct sgp_lane *sgp_lane_current __attribute__((tls_model("initial-exec")));

static struct sgp_lane *free_lanes;
static uint32_t nr_lanes;
static pthread_mutex_t lanes_lock = PTHREAD_MUTEX_INITIALIZER;

static struct sgp_lane *lane_new(void)
{
    struct sgp_lane *lane = calloc(1, sizeof(*lane));
    uint64_t bytes = SGP_PAGE_BYTES + SGP_BLOCK_STACK_BYTES;
    uint8_t *mapping;

    if (!lane) {
        return NULL;
    }
    mapping = sgp_reach_map(bytes, PROT_NONE, MAP_NORESERVE);
    if (!mapping) {
        goto failed;
    }
    lane->block_stack = mapping + SGP_PAGE_BYTES;
    if (mprotect(lane->block_stack, SGP_BLOCK_STACK_BYTES, PROT_READ | PROT_WRITE)) {
        sgp_reach_unmap(mapping, bytes);
        goto failed;
    }
    return lane;
failed:
    free(lane);
    return NULL;
}

struct sgp_lane *sgp_lane_take(void)
{
    struct sgp_lane *lane;

    pthread_mutex_lock(&lanes_lock);
    lane = free_lanes;
    if (lane) {
        free_lanes = lane->next_free;
    } else {
        lane = lane_new();
        if (lane) {
            lane->index = nr_lanes++;
        }
    }
    pthread_mutex_unlock(&lanes_lock);
    return lane;
}

void sgp_lane_give(struct sgp_lane *lane)
{
    while (lane->nr_teams > NR_TEAMS_KEPT) {
        sgp_team_delete(lane->teams[--lane->nr_teams]);
    }
    pthread_mutex_lock(&lanes_lock);
    lane->next_free = free_lanes;
    free_lanes = lane;
    pthread_mutex_unlock(&lanes_lock);
}

struct sgp_team *sgp_lane_team(struct sgp_lane *lane, uint32_t number)
{
    if (number == lane->nr_teams) {
        lane->teams[number] = sgp_team_new(lane);
        if (!lane->teams[number]) {
            return NULL;
        }
        lane->nr_teams++;
    }
    return sgp_team_prepare(lane->teams[number], lane->grid) ? lane->teams[number] : NULL;
}

void sgp_lane_abandon(struct sgp_lane *lane, CUresult error)
{
    lane->error = error;
    lane->is_in_kernel = false;
    sgp_fiber_jump(lane->home);
}
