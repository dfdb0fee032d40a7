/*
 * Which fiber of a block runs. The runner runs one of them until it waits or ends: the next is the one that has been
 * ready longest; threads not yet started come first, so that all reach a barrier before anybody passes it twice. A
 * switch goes from fiber to fiber, home only when nobody is ready.
 *
 * A thread in a loop that waits for what another one writes yields with each turn. When as many turns have gone by as
 * there are threads, or there is nobody else, the block goes home as a whole: whatever it waits for may be another
 * block's to do.
 *
 * Wrong when: a loop waits for another thread in a way that the compiler does not see (spin.py). Fibers are not
 * preempted.
 */
#include "runtime/records.h"

void sgp_thread_ready(struct sgp_team *team, struct sgp_thread *thread)
{
    thread->next = NULL;
    *team->queue_last = thread;
    team->queue_last = &thread->next;
}

struct sgp_thread *sgp_thread_next(struct sgp_team *team)
{
    struct sgp_thread *thread;

    if (team->nr_started < team->nr_threads) {
        thread = &team->threads[team->nr_started++];
        thread->stack = team->free_stacks[--team->nr_free_stacks];
        thread->stack_pointer = sgp_fiber_prepare(thread->stack, team->thread_main, thread);
        thread->nap_ns = 0; /* as a block that ended in a fault may have left them */
        thread->place = 0;
        thread->part = NULL;
        return thread;
    }
    thread = team->queue;
    if (thread) {
        team->queue = thread->next;
        if (!team->queue) {
            team->queue_last = &team->queue;
        }
    }
    return thread;
}

void sgp_thread_wait(struct sgp_thread *thread)
{
    struct sgp_thread *next = sgp_thread_next(thread->team);

    if (next != thread) {
        sgp_fiber_switch(&thread->stack_pointer, next ? next->stack_pointer : thread->team->runner->home);
    }
}

void sgp_thread_yield(struct sgp_thread *thread)
{
    struct sgp_team *team = thread->team;
    bool is_alone = !team->queue && team->nr_started == team->nr_threads;

    team->nap_ns = thread->nap_ns < team->nap_ns ? thread->nap_ns : team->nap_ns;
    thread->nap_ns = 0;
    sgp_thread_ready(team, thread);
    if (++team->nr_yields < team->nr_alive && !is_alone) {
        sgp_thread_wait(thread);
    } else {
        team->nr_yields = 0;
        sgp_fiber_switch(&thread->stack_pointer, team->runner->home);
    }
}

void sgp_thread_nap(struct sgp_thread *thread, uint32_t ns)
{
    thread->nap_ns = ns;
}
