/*
 * The rendezvous of a warp's threads: each brings 64 bits and takes everybody's. Threads meet under the mask of members
 * they all name; a member that has exited is not waited for. Different masks are different meetings, so diverged parts
 * of a warp do not disturb each other.
 *
 * activemask has no mask to meet under. A thread that comes to one lets all others of the block run until they wait;
 * those of its warp that came to the same place meanwhile are converged with it. If some stand at such a place earlier
 * in the code, they go first: they may yet come along, as after a loop of different lengths. That is tried a bounded
 * number of times and nobody waits for anybody, so that any program goes on; who is alone gets itself.
 */
#include <string.h>

#include "runtime/records.h"

#define MAX_PATIENCE 256u /* turns given to lanes that are behind */

static void meet(struct sgp_team *team, uint32_t first_thread, uint32_t arrived, const struct sgp_thread *self)
{
    uint64_t values[SGP_WARP_THREADS] = {0};

    for (uint32_t rest = arrived; rest; rest &= rest - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(rest);

        values[lane] = team->threads[first_thread + lane].value;
    }
    for (uint32_t rest = arrived; rest; rest &= rest - 1) {
        struct sgp_thread *thread = &team->threads[first_thread + (uint32_t)__builtin_ctz(rest)];

        thread->result = arrived;
        if (thread->values) {
            memcpy(thread->values, values, sizeof(values));
        }
        if (thread != self) {
            sgp_thread_ready(team, thread);
        }
    }
}

static struct sgp_warp_group *group_of(struct sgp_warp *warp, uint32_t member_mask)
{
    for (uint32_t i = 0; i < warp->nr_groups; i++) {
        if (warp->groups[i].member_mask == member_mask) {
            return &warp->groups[i];
        }
    }
    warp->groups[warp->nr_groups] = (struct sgp_warp_group){.member_mask = member_mask};
    return &warp->groups[warp->nr_groups++];
}

static bool is_complete(const struct sgp_warp *warp, const struct sgp_warp_group *group)
{
    return !(group->member_mask & warp->alive & ~group->arrived);
}

uint32_t sgp_warp_exchange(struct sgp_thread *self, uint32_t member_mask, uint64_t value, uint64_t values[32])
{
    struct sgp_team *team = self->team;
    struct sgp_warp *warp = &team->warps[self->index / SGP_WARP_THREADS];
    uint32_t first_thread = self->index / SGP_WARP_THREADS * SGP_WARP_THREADS,
             lane_bit = 1u << self->index % SGP_WARP_THREADS;
    struct sgp_warp_group *group = group_of(warp, member_mask | lane_bit);

    self->value = value;
    self->values = values;
    group->arrived |= lane_bit;
    if (is_complete(warp, group)) {
        uint32_t arrived = group->arrived;

        *group = warp->groups[--warp->nr_groups];
        meet(team, first_thread, arrived, self);
    } else {
        sgp_thread_wait(self);
    }
    return self->result;
}

void sgp_warp_thread_exited(struct sgp_team *team, const struct sgp_thread *thread)
{
    struct sgp_warp *warp = &team->warps[thread->index / SGP_WARP_THREADS];

    for (uint32_t i = 0; i < warp->nr_groups;) {
        if (is_complete(warp, &warp->groups[i])) {
            uint32_t arrived = warp->groups[i].arrived;

            warp->groups[i] = warp->groups[--warp->nr_groups];
            meet(team, thread->index / SGP_WARP_THREADS * SGP_WARP_THREADS, arrived, thread);
        } else {
            i++;
        }
    }
}

static bool is_ahead(const struct sgp_thread *first, uint32_t size, uintptr_t place)
{
    for (uint32_t i = 0; i < size; i++) {
        if (first[i].place && first[i].place < place) {
            return true;
        }
    }
    return false;
}

uint32_t sgp_warp_converge(struct sgp_thread *self, uintptr_t place)
{
    struct sgp_team *team = self->team;
    struct sgp_thread *first = &team->threads[self->index / SGP_WARP_THREADS * SGP_WARP_THREADS];
    uint32_t size = sgp_warp_size(team, self->index / SGP_WARP_THREADS), mask = 0;

    self->place = place;
    self->member_mask = 0;
    for (uint32_t i = 0; !i || (!self->member_mask && i < MAX_PATIENCE && is_ahead(first, size, place)); i++) {
        sgp_thread_ready(team, self);
        sgp_thread_wait(self);
    }
    if (!self->member_mask) { /* otherwise the first of the converged threads has been here */
        for (uint32_t i = 0; i < size; i++) {
            if (first[i].place == place && !first[i].member_mask) {
                mask |= 1u << i;
            }
        }
        for (uint32_t rest = mask; rest; rest &= rest - 1) {
            first[__builtin_ctz(rest)].member_mask = mask;
        }
    }
    self->place = 0;
    return self->member_mask;
}
