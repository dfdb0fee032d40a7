/* What a worker expects of the device, for test_due.py: a row of submissions that ended, and the next row. */
#include "track/due.h"

#include "track/state.h"

static struct fgw_track track;
static struct fgw_worker worker = {.track = &track};

void begin(void)
{
    track = (struct fgw_track){.last_finish_ns = 1};
}

/* So many took so long together. */
void ended(uint32_t nr, uint32_t nr_copies, uint64_t took_ns)
{
    fgw_due_note(&worker, nr, nr_copies, track.last_finish_ns + took_ns);
}

/* What so many are expected to take, up to one mark or all that is submitted; 0: not known. */
uint64_t expected(uint32_t nr, uint32_t nr_copies, bool is_marked)
{
    struct fgw_mark mark = {.nr_submissions = nr, .nr_copies = nr_copies};
    struct fgw_stream stream = {.first_mark = &mark};
    track.busy = is_marked ? &stream : NULL;
    track.nr_unfinished = nr;
    track.nr_copies = nr_copies;
    const uint64_t due_ns = fgw_due_mark_ns(&worker);
    track.busy = NULL;
    track.nr_unfinished = track.nr_copies = 0;
    return due_ns == 0 ? 0 : due_ns - track.last_finish_ns;
}
