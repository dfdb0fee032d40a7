/* The marks of what a worker submits while others wait, for test_queue.py. */
#include "worker.h"

/* Fills the queue at the beginning of a slice with submissions of that length. Writes how many each mark is for, and
 * gives the number of marks; 0: there are more than `most`. */
uint32_t fill(uint64_t slice_ns, uint64_t mean_ns, bool is_preemptive, uint32_t *marks, uint32_t most)
{
    struct fgv_control control = {.is_preemptive = is_preemptive};
    struct fgv_worker worker = {.due = {.mean_ns = mean_ns}, .grantee = {.control = &control}};
    uint32_t nr_marks = 0, nr_unmarked = 0;
    while (worker.nr_unfinished < fgv_queue_most(&worker, slice_ns)) {
        worker.nr_unfinished++;
        if (++nr_unmarked >= worker.mark_interval) {
            if (nr_marks == most) {
                return 0;
            }
            marks[nr_marks++] = nr_unmarked;
            nr_unmarked = 0;
        }
    }
    return nr_marks;
}
