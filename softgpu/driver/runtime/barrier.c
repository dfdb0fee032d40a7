/*
 * Barriers of a block. A barrier without a count is for all threads that live; those that exit no longer count, so an
 * exit may open it. A barrier with a count is counted as the hardware does, in warps: an arriving warp brings its
 * missing and its exited threads along. Who only arrives (bar.arrive) counts and goes on.
 */
#include <string.h>

#include "runtime/records.h"

static void release(struct sgp_team *team, struct sgp_barrier *barrier, uint32_t number)
{
    struct sgp_thread *thread = barrier->waiting;

    while (thread) {
        struct sgp_thread *next = thread->next;

        thread->member_mask = barrier->all;
        thread->predicate = barrier->any;
        thread->result = barrier->population;
        sgp_thread_ready(team, thread);
        thread = next;
    }
    memset(barrier, 0, sizeof(*barrier));
    team->active_barriers &= ~(1u << number);
}

static bool is_complete(const struct sgp_team *team, const struct sgp_barrier *barrier)
{
    return barrier->nr_required ? barrier->nr_counted >= barrier->nr_required : barrier->nr_arrived >= team->nr_alive;
}

/* Counts one arrival. */
static struct sgp_barrier *arrive(struct sgp_thread *self, uint32_t number, uint32_t nr_required)
{
    struct sgp_team *team = self->team;
    struct sgp_barrier *barrier = &team->barriers[number];
    uint32_t warp = self->index / SGP_WARP_THREADS;
    uint32_t lane_bit = 1u << self->index % SGP_WARP_THREADS;

    if (!barrier->nr_arrived) {
        barrier->last = &barrier->waiting;
        barrier->all = 1;
        team->active_barriers |= 1u << number;
    }
    barrier->nr_required = nr_required;
    barrier->nr_arrived++;
    if (!barrier->arrived_lanes[warp]) {
        barrier->nr_counted += SGP_WARP_THREADS - (uint32_t)__builtin_popcount(team->warps[warp].alive);
    }
    barrier->arrived_lanes[warp] |= lane_bit;
    barrier->nr_counted++;
    return barrier;
}

uint32_t sgp_barrier_wait(struct sgp_thread *self, uint32_t number, uint32_t nr_required, uint32_t operation,
                          uint32_t predicate)
{
    struct sgp_team *team = self->team;
    struct sgp_barrier *barrier;

    number %= SGP_NR_BARRIERS;
    barrier = arrive(self, number, nr_required);
    barrier->all &= predicate != 0;
    barrier->any |= predicate != 0;
    barrier->population += predicate != 0;
    self->next = NULL;
    *barrier->last = self;
    barrier->last = &self->next;
    if (is_complete(team, barrier)) {
        release(team, barrier, number);
    }
    sgp_thread_wait(self);
    return operation == SGP_BARRIER_AND  ? self->member_mask
           : operation == SGP_BARRIER_OR ? self->predicate
                                         : self->result;
}

void sgp_barrier_arrive(struct sgp_thread *self, uint32_t number, uint32_t nr_required)
{
    struct sgp_team *team = self->team;
    struct sgp_barrier *barrier;

    number %= SGP_NR_BARRIERS;
    barrier = arrive(self, number, nr_required);
    if (is_complete(team, barrier)) {
        release(team, barrier, number);
    }
}

void sgp_barrier_thread_exited(struct sgp_team *team, const struct sgp_thread *thread)
{
    uint32_t active = team->active_barriers;
    uint32_t lane_bit = 1u << thread->index % SGP_WARP_THREADS;

    while (active) {
        uint32_t number = (uint32_t)__builtin_ctz(active);
        struct sgp_barrier *barrier = &team->barriers[number];
        uint32_t arrived_lanes = barrier->arrived_lanes[thread->index / SGP_WARP_THREADS];

        active &= active - 1;
        if (arrived_lanes && !(arrived_lanes & lane_bit)) {
            barrier->nr_counted++;
        }
        if (is_complete(team, barrier)) {
            release(team, barrier, number);
        }
    }
}
