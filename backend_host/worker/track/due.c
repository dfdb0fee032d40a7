#include "track/due.h"

#include "client/state.h"
#include "ivshmem/habit.h"
#include "track/running.h"
#include "track/state.h"

static uint32_t at_most(uint32_t nr, uint32_t most)
{
    return nr < most ? nr : most;
}

/* Tells what so many submissions take, `nr_copies` of them copies; 0: not known. */
static uint64_t expected_ns(const struct fgw_due *due, uint32_t nr, uint32_t nr_copies)
{
    const uint32_t nr_others = nr - nr_copies;
    const bool is_known = (nr_copies == 0 || due->copy_ns != 0) && (nr_others == 0 || due->work_ns != 0);
    return is_known ? due->copy_ns * nr_copies + due->work_ns * nr_others : due->mean_ns * nr;
}

static void note_lengths(struct fgw_due *due, uint64_t took_ns, uint32_t nr, uint32_t nr_copies)
{
    const uint64_t copies_ns = due->copy_ns * nr_copies;
    due->mean_ns = fgw_mean_with(due->mean_ns, took_ns / nr);
    if (nr_copies == nr) {
        due->copy_ns = fgw_mean_with(due->copy_ns, took_ns / nr);
    } else if (took_ns > copies_ns) {
        due->work_ns = fgw_mean_with(due->work_ns, (took_ns - copies_ns) / (nr - nr_copies));
    }
}

/* Copies that a host function of the guest holds may be among `nr_copies`. */
void fgw_due_note(struct fgw_worker *worker, uint32_t nr, uint32_t nr_copies, uint64_t now_ns)
{
    struct fgw_due *due = &worker->track->due;
    const uint64_t took_ns = now_ns - worker->track->last_finish_ns;
    nr_copies = at_most(nr_copies, nr);
    const uint64_t usual_ns = expected_ns(due, nr, nr_copies);
    if (usual_ns != 0) {
        fgv_habit_note(&due->error, took_ns > usual_ns ? took_ns - usual_ns : usual_ns - took_ns);
    }
    note_lengths(due, took_ns, nr, nr_copies);
}

static uint64_t end_of_ns(const struct fgw_worker *worker, uint32_t nr, uint32_t nr_copies)
{
    const uint64_t takes_ns = expected_ns(&worker->track->due, nr, at_most(nr_copies, nr));
    return takes_ns != 0 ? worker->track->last_finish_ns + takes_ns : 0;
}

uint64_t fgw_due_mark_ns(const struct fgw_worker *worker)
{
    const struct fgw_mark *mark =
        worker->track->busy && worker->track->nr_beside == 0 ? worker->track->busy->first_mark : NULL;
    return mark ? end_of_ns(worker, mark->nr_submissions, mark->nr_copies)
                : end_of_ns(worker, worker->track->nr_unfinished, worker->track->nr_copies);
}

uint64_t fgw_due_end_ns(const struct fgw_worker *worker)
{
    return end_of_ns(worker, fgw_nr_running(worker), worker->track->nr_copies);
}
