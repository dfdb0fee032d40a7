/* What a worker expects of the device, for test_due.py: a row of submissions that ended, and the next row. */
#include "worker.h"

static struct fgv_worker worker;

void begin(void)
{
    worker = (struct fgv_worker){.last_finish_ns = 1};
}

/* So many took so long together. */
void ended(uint32_t nr, uint32_t nr_copies, uint64_t took_ns)
{
    fgv_due_note(&worker, nr, nr_copies, worker.last_finish_ns + took_ns);
}

/* What so many are expected to take, up to one mark or all that is submitted; 0: not known. */
uint64_t expected(uint32_t nr, uint32_t nr_copies, bool is_marked)
{
    struct fgv_mark mark = {.nr_submissions = nr, .nr_copies = nr_copies};
    struct fgv_stream stream = {.first_mark = &mark};
    worker.busy = is_marked ? &stream : NULL;
    worker.nr_unfinished = nr;
    worker.beside.nr_copies = nr_copies;
    const uint64_t due_ns = fgv_due_mark_ns(&worker);
    worker.busy = NULL;
    worker.nr_unfinished = worker.beside.nr_copies = 0;
    return due_ns == 0 ? 0 : due_ns - worker.last_finish_ns;
}
