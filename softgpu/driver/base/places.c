/*
 * Places on multiprocessors: see run.h. Each run has a record in the device's file, which says what its blocks take and
 * whether some of them wait, and on which it holds a lock: a record that nobody holds is that of a process that died,
 * and counts no more. Who lives is only looked at when room seems to be lacking.
 *
 * Wrong when: somebody writes rubbish into the file. Blocks then wait that need not, or too many run at once; nothing
 * else rests on it.
 */
#include "base/places.h"

#include <string.h>
#include <unistd.h>

/* What others leave of each multiprocessor, as it looks to one run. */
struct view_of_room {
    uint64_t taken[SGP_NR_MULTIPROCESSORS];
    bool is_behind; /* one who comes before waits */
};

static bool comes_before(const struct sgp_state_run *a, const struct sgp_state_run *b)
{
    return a->is_low != b->is_low ? !a->is_low : a->ticket < b->ticket;
}

static bool is_blank(const struct sgp_state_run *record)
{
    uint64_t all = record->nr_waiting;

    for (int i = 0; i < SGP_NR_MULTIPROCESSORS; i++) {
        all |= record->units[i];
    }
    return !all;
}

static void add(struct view_of_room *room, const struct sgp_state_run *record, const struct sgp_state_run *own)
{
    for (int i = 0; i < SGP_NR_MULTIPROCESSORS; i++) {
        uint64_t sum = room->taken[i] + record->units[i];

        room->taken[i] = sum < record->units[i] ? UINT64_MAX : sum;
    }
    room->is_behind = room->is_behind || (record->nr_waiting && record != own && comes_before(record, own));
}

/* With a look at who lives, the records of the dead are emptied on the way. */
static void look(struct view_of_room *room, const struct sgp_run *asker, bool looks_who_lives)
{
    struct sgp_state *state = asker->state;
    struct sgp_state_run records[SGP_STATE_NR_RUNS];
    ssize_t got = pread(state->fd, records, sizeof(records), SGP_STATE_RUNS_OFFSET);

    *room = (struct view_of_room){.is_behind = false};
    for (const struct sgp_run *run = state->runs; run; run = run->next) {
        if (run->number >= 0) {
            add(room, &run->record, &asker->record);
            records[run->number] = (struct sgp_state_run){.ticket = 0}; /* the file may say otherwise */
        }
    }
    for (int i = 0; (ssize_t)((size_t)(i + 1) * sizeof(records[0])) <= got; i++) {
        if (is_blank(&records[i])) {
            continue;
        }
        if (!looks_who_lives || sgp_run_lives(state, i)) {
            add(room, &records[i], &asker->record);
        } else {
            sgp_run_bury(state, i);
        }
    }
}

/* Takes places, each where most room is; how many of `nr` there were. */
static uint64_t take(struct sgp_run *run, struct view_of_room *room, uint64_t nr, uint32_t places[])
{
    uint64_t taken = 0;

    for (; taken < nr && !room->is_behind; taken++) {
        uint32_t best = 0;

        for (uint32_t i = 1; i < SGP_NR_MULTIPROCESSORS; i++) {
            best = room->taken[i] < room->taken[best] ? i : best;
        }
        if (room->taken[best] > SGP_MULTIPROCESSOR_UNITS - run->units) {
            break;
        }
        room->taken[best] += run->units;
        run->record.units[best] += run->units;
        places[best]++;
    }
    return taken;
}

static void untake(struct sgp_run *run, uint32_t places[])
{
    for (int i = 0; i < SGP_NR_MULTIPROCESSORS; i++) {
        run->record.units[i] -= places[i] * run->units;
        places[i] = 0;
    }
}

/* All of `nr`, or none. */
static bool take_all(struct sgp_run *run, uint64_t nr, uint32_t places[SGP_NR_MULTIPROCESSORS])
{
    struct view_of_room room;

    memset(places, 0, SGP_NR_MULTIPROCESSORS * sizeof(places[0]));
    for (int looks_who_lives = 0; looks_who_lives < 2; looks_who_lives++) {
        look(&room, run, looks_who_lives);
        if (take(run, &room, nr, places) == nr) {
            return true;
        }
        untake(run, places);
    }
    return false;
}

bool sgp_places_keep(struct sgp_run *run, uint64_t nr)
{
    bool has_room = take_all(run, nr, run->nr_kept);

    run->record.nr_waiting = !has_room;
    sgp_run_write(run);
    return has_room;
}

static uint32_t kept_place(struct sgp_run *run)
{
    for (uint32_t i = 0; i < SGP_NR_MULTIPROCESSORS; i++) {
        if (run->nr_kept[i]) {
            run->nr_kept[i]--;
            run->nr_held[i]++;
            return i;
        }
    }
    return SGP_NO_PLACE;
}

static uint32_t new_place(struct sgp_run *run)
{
    uint32_t places[SGP_NR_MULTIPROCESSORS];
    uint32_t place = 0;

    if (!take_all(run, 1, places)) {
        run->record.nr_waiting++;
        return SGP_NO_PLACE;
    }
    while (!places[place]) {
        place++;
    }
    run->nr_held[place]++;
    return place;
}

uint32_t sgp_run_place(struct sgp_run *run, uint32_t left, uint32_t wish)
{
    uint32_t place = SGP_NO_PLACE;

    sgp_state_lock_counts(run->state);
    if (left < SGP_NR_MULTIPROCESSORS && run->nr_held[left]) {
        run->nr_held[left]--;
        run->record.units[left] -= run->keeps ? 0 : run->units;
        run->nr_kept[left] += run->keeps;
    }
    if (wish & SGP_PLACE_WAITED && run->record.nr_waiting) {
        run->record.nr_waiting--;
    }
    if (wish & SGP_PLACE_WANTED) {
        place = run->keeps ? kept_place(run) : new_place(run);
    }
    if (!run->keeps) {
        sgp_run_write(run);
    }
    sgp_state_unlock_counts(run->state);
    return place;
}
