/* See run_records.h. */
#include "base/run_records.h"

#include <fcntl.h>
#include <unistd.h>

static off_t offset_of(int number)
{
    return SGP_STATE_RUNS_OFFSET + (off_t)number * (off_t)sizeof(struct sgp_state_run);
}

bool sgp_run_others_lock(const struct sgp_state *state, short type, off_t start, off_t length, off_t *found)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};

    if (!length || fcntl(state->fd, F_OFD_GETLK, &lock) || lock.l_type == F_UNLCK) {
        return false;
    }
    if (found) {
        *found = lock.l_start;
    }
    return true;
}

static bool is_own(const struct sgp_state *state, int number)
{
    for (const struct sgp_run *run = state->runs; run; run = run->next) {
        if (run->number == number) {
            return true;
        }
    }
    return false;
}

bool sgp_run_lives(const struct sgp_state *state, int number)
{
    return is_own(state, number) || sgp_run_others_lock(state, F_WRLCK, offset_of(number), 1, NULL);
}

/* A count that cannot be written is lost; nothing but counts rests on it. */
static void write_record(const struct sgp_state *state, int number, const struct sgp_state_run *record)
{
    if (pwrite(state->fd, record, sizeof(*record), offset_of(number)) < 0) {
        return;
    }
}

void sgp_run_write(const struct sgp_run *run)
{
    write_record(run->state, run->number, &run->record);
}

void sgp_run_bury(const struct sgp_state *state, int number)
{
    const struct sgp_state_run empty = {0};

    write_record(state, number, &empty);
}

bool sgp_run_take_record(struct sgp_run *run)
{
    struct sgp_state *state = run->state;

    for (int i = 0; i < SGP_STATE_NR_RUNS; i++) {
        if (!is_own(state, i) && !sgp_state_lock_bytes(state->fd, F_OFD_SETLK, F_WRLCK, offset_of(i), 1)) {
            run->number = i;
            sgp_run_write(run);
            return true;
        }
    }
    return false;
}

void sgp_run_give_record(struct sgp_run *run)
{
    sgp_run_bury(run->state, run->number);
    sgp_state_lock_bytes(run->state->fd, F_OFD_SETLK, F_UNLCK, offset_of(run->number), 1);
    run->number = -1;
}
