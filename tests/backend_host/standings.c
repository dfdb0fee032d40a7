/* A standing that is published while it is read, for test_standings.py: the daemon, or a worker, stops behind any of
 * its instructions. */
#define _GNU_SOURCE
#include <stdbool.h>

#include "page/account.h"
#include "page/control.h"
#include "page_alone.h"
#include "stepping.h"

static struct fgw_control *control;
static double was_read;

/* A page with one vGPU, that was charged for so long. */
bool begin(const int *objects, uint64_t used_ns)
{
    control = fgw_control_format(objects, 1, false);
    if (!control || fgw_control_vgpu_take(control, 0) != 0) {
        return false;
    }
    atomic_store(&control->accounts[0]->used_ns, used_ns);
    return true;
}

void end(void)
{
    fgw_control_close(control);
}

struct pair {
    double standing, per_ns;
};

void publish(double standing, double per_ns)
{
    fgw_control_set_standing(control, 0, standing, per_ns, 0);
}

double read_it(void)
{
    return fgw_control_standing(control, 0);
}

static void publish_pair(const void *pair)
{
    const struct pair *its = pair;
    publish(its->standing, its->per_ns);
}

static void keep_read(const void *of)
{
    (void)of;
    was_read = read_it();
}

/* Publishes in a process of its own, that dies behind its first so many instructions. 1: it did; 0: it came to its end
 * before that; -1: it could not be watched. `seen`: what stands there as it is stopped. */
int publish_and_die(double standing, double per_ns, uint32_t nr_instructions, double *seen)
{
    struct pair pair = {standing, per_ns};
    struct step step = {publish_pair, &pair};
    const pid_t child = step_begin(&step, nr_instructions);
    *seen = read_it();
    return child <= 0 ? child : step_die(child) ? 1 : -1;
}

/* Reads in a process of its own, behind whose first so many instructions these are published. 1: they were; 0: it came
 * to its end before that; -1: it could not be watched. `seen`: what it reads. */
int read_amid(const double *standing, const double *per_ns, uint32_t nr, uint32_t nr_instructions, double *seen)
{
    struct step step = {keep_read, NULL};
    const pid_t child = step_begin(&step, nr_instructions);
    for (uint32_t i = 0; i < nr; i++) {
        publish(standing[i], per_ns[i]);
    }
    const bool is_well = child <= 0 || step_end(child);
    *seen = was_read;
    return child <= 0 ? child : is_well ? 1 : -1;
}
