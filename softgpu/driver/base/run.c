/*
 * When a kernel of a space has the device. All kernels take tickets (turn.c); the device belongs to the space of the
 * lowest one as a whole, whether its kernel runs or still waits. So a space takes its turn as one process does, and a
 * kernel joins it beside one that never ends; but kernels that overlap each other cannot keep a process outside waiting
 * for ever: once those that had come before it have ended, new ones stand behind it.
 *
 * Everything rests on locks, as in turn.c:
 *
 *     byte 1               read: a kernel of a space runs (outside of spaces it is locked for writing)
 *     2^31 + space         read: a kernel of this space runs
 *     2^32 + n             ticket n is waiting or being served
 *     (space + 2) 2^40 + n and it is one of this space
 *
 * Own locks do not show, so this process keeps a list of its runs. Who waits looks again every 0.1 ms: there is no lock
 * to sleep on for "none of the others' but ours".
 */
#include "base/run.h"

#include <fcntl.h>

#include "base/futex.h"
#include "base/space.h"
#include "base/state.h"

#define SPACES_OFFSET ((off_t)1 << 31)

static off_t space_ticket(uint64_t ticket)
{
    return ((off_t)(sgp_space()->number + 2) << 40) + (off_t)ticket;
}

/* With the counts locked. */
static void ticket_lock(struct sgp_run *run)
{
    struct sgp_state *state = run->state;

    run->record.ticket = sgp_state_take_ticket(state);
    sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_WRLCK, space_ticket(run->record.ticket), 1);
    run->next = state->runs;
    state->runs = run;
}

/* With the counts locked: the lowest ticket is one of this space. */
static bool is_spaces_turn(const struct sgp_state *state)
{
    uint64_t lowest = UINT64_MAX;
    off_t others, end;

    for (const struct sgp_run *run = state->runs; run; run = run->next) {
        lowest = run->record.ticket < lowest ? run->record.ticket : lowest;
    }
    end = SGP_STATE_TICKETS_OFFSET + (off_t)lowest;
    others = end;
    /* The first that is found need not be the lowest. It may begin before all tickets, if somebody locks what he likes.
     */
    while (others > SGP_STATE_TICKETS_OFFSET &&
           sgp_run_others_lock(state, F_RDLCK, SGP_STATE_TICKETS_OFFSET, others - SGP_STATE_TICKETS_OFFSET, &others)) {
    }
    return others == end ||
           sgp_run_others_lock(state, F_RDLCK, space_ticket((uint64_t)(others - SGP_STATE_TICKETS_OFFSET)), 1, NULL);
}

/* With the counts locked. False: a kernel that is not of this space runs. */
static bool device_lock(const struct sgp_state *state)
{
    const off_t number = sgp_space()->number, end = (off_t)1 << SGP_SPACE_NUMBER_BITS;

    if (sgp_run_others_lock(state, F_WRLCK, SPACES_OFFSET, number, NULL) ||
        sgp_run_others_lock(state, F_WRLCK, SPACES_OFFSET + number + 1, end - number - 1, NULL) ||
        sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_RDLCK, SGP_STATE_RUNNING_BYTE, 1)) {
        return false;
    }
    sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_RDLCK, SPACES_OFFSET + number, 1);
    return true;
}

/* With the counts locked. */
static bool step(struct sgp_run *run, uint64_t nr_together)
{
    struct sgp_state *state = run->state;

    if (!run->runs) {
        if (!is_spaces_turn(state) || !device_lock(state)) {
            return false;
        }
        run->runs = true;
        state->nr_running++;
    }
    if (run->number < 0 && !sgp_run_take_record(run)) {
        return false;
    }
    return !nr_together || sgp_places_keep(run, nr_together);
}

void sgp_run_begin(struct sgp_run *run, struct sgp_state *state, uint32_t nr_fit, uint64_t nr_together)
{
    bool has_begun;

    *run = (struct sgp_run){
        .state = state,
        .number = -1,
        .record.is_low = sgp_space()->is_low,
        .units = SGP_MULTIPROCESSOR_UNITS / nr_fit,
        .keeps = nr_together != 0,
    };
    sgp_state_lock_counts(state);
    ticket_lock(run);
    has_begun = step(run, nr_together);
    sgp_state_unlock_counts(state);
    while (!has_begun) {
        sgp_futex_nap(SGP_RUN_LOOK_NS);
        sgp_state_lock_counts(state);
        has_begun = step(run, nr_together);
        sgp_state_unlock_counts(state);
    }
}

/* With the counts locked. */
static void list_leave(const struct sgp_run *run)
{
    struct sgp_run **link = &run->state->runs;

    while (*link != run) {
        link = &(*link)->next;
    }
    *link = run->next;
}

uint32_t sgp_run_end(struct sgp_run *run, uint64_t busy_ns)
{
    struct sgp_state *state = run->state;
    const off_t ticket = (off_t)run->record.ticket;

    sgp_state_lock_counts(state);
    sgp_state_count_kernel(state, busy_ns);
    sgp_run_give_record(run);
    list_leave(run);
    sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_UNLCK, space_ticket((uint64_t)ticket), 1);
    sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_UNLCK, SGP_STATE_TICKETS_OFFSET + ticket, 1);
    if (--state->nr_running == 0) {
        sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_UNLCK, SPACES_OFFSET + (off_t)sgp_space()->number, 1);
        sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_UNLCK, SGP_STATE_RUNNING_BYTE, 1);
    }
    sgp_state_unlock_counts(state);
    return sgp_state_failure(state);
}
