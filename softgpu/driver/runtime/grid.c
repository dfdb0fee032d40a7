/*
 * The blocks of a launch, over the runners of this process. The thread that serves the launch runs blocks itself;
 * helpers join when what is left is worth waking them. Several launches may be in work at once, of different devices.
 */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include "runtime/records.h"
#include "stream/queue.h"

#define WORTH_WAKING_NS 30000u
#define MAX_RUNNERS     256u
#define MAX_CHUNK       64u

struct job {
    struct sgp_grid *grid;
    struct job *next;
    uint32_t nr_active;
    uint32_t nr_wanted; /* helpers that may still join */
};

static pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t jobs_posted = PTHREAD_COND_INITIALIZER;
static pthread_cond_t jobs_left = PTHREAD_COND_INITIALIZER;
static struct job *jobs;
static uint32_t nr_helpers;
static uint32_t nr_runners; /* this process may use at once, for one launch */

static uint32_t count_runners(void)
{
    const char *text = getenv("FAIRGV_SOFTGPU_THREADS");
    cpu_set_t cpus;
    long nr = text ? strtol(text, NULL, 10) : 0;

    if (nr <= 0) {
        nr = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    }
    return nr > (long)MAX_RUNNERS ? MAX_RUNNERS : (uint32_t)nr;
}

/* False: it failed, and the launch with it. */
static bool run_block(struct sgp_grid *grid, struct sgp_runner *runner, uint64_t number)
{
    struct sgp_team *team = runner->teams[0];

    if (!sgp_place_keep(grid, runner, team, true)) {
        return false;
    }
    sgp_block_begin(team, grid, number);
    if (sgp_block_go_on(team) == SGP_ENDED) {
        return true;
    }
    sgp_block_fail(team, grid);
    return false;
}

/* Runs blocks until none is left or one fails. */
static void run_in_order(struct sgp_grid *grid, struct sgp_runner *runner)
{
    bool goes_on = true;

    while (goes_on && !__atomic_load_n(&grid->error, __ATOMIC_RELAXED) &&
           sgp_place_keep(grid, runner, runner->teams[0], false)) {
        uint64_t first = __atomic_fetch_add(&grid->next_block, grid->chunk, __ATOMIC_RELAXED);
        uint64_t last = first + grid->chunk < grid->nr_blocks ? first + grid->chunk : grid->nr_blocks;

        if (first >= grid->nr_blocks) {
            break;
        }
        for (uint64_t number = first; goes_on && number < last; number++) {
            goes_on = run_block(grid, runner, number);
        }
    }
}

static void run_blocks(struct sgp_grid *grid, struct sgp_runner *runner)
{
    runner->error = CUDA_SUCCESS;
    sgp_runner_current = runner;
    (grid->kernel->spins ? sgp_resident_run : run_in_order)(grid, runner);
    sgp_runner_current = NULL;
    sgp_place_leave(grid, runner->teams[0]);
}

static void take_part(struct sgp_grid *grid)
{
    struct sgp_runner *runner = sgp_runner_take();

    if (!runner) {
        return;
    }
    runner->grid = grid;
    if (sgp_runner_team(runner, 0)) {
        run_blocks(grid, runner);
    }
    sgp_runner_give(runner);
}

static struct job *job_find(void)
{
    for (struct job *job = jobs; job; job = job->next) {
        if (job->nr_wanted) {
            return job;
        }
    }
    return NULL;
}

static void *helper_main(void *unused)
{
    (void)unused;
    sgp_queue_thread_start();
    pthread_mutex_lock(&jobs_lock);
    for (;;) {
        struct job *job = job_find();

        if (!job) {
            pthread_cond_wait(&jobs_posted, &jobs_lock);
            continue;
        }
        job->nr_wanted--;
        job->nr_active++;
        pthread_mutex_unlock(&jobs_lock);
        take_part(job->grid);
        pthread_mutex_lock(&jobs_lock);
        if (--job->nr_active == 0) {
            pthread_cond_broadcast(&jobs_left);
        }
    }
    return NULL;
}

/* With the jobs locked. Threads inherit this one's signal mask: it is an executor's. */
static void helpers_start(uint32_t nr)
{
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    while (nr_helpers < nr && !pthread_create(&thread, &attributes, helper_main, NULL)) {
        nr_helpers++;
    }
    pthread_attr_destroy(&attributes);
}

static void job_begin(struct job *job)
{
    job->next = jobs;
    jobs = job;
    pthread_cond_broadcast(&jobs_posted);
    pthread_mutex_unlock(&jobs_lock);
}

static void job_end(struct job *job)
{
    pthread_mutex_lock(&jobs_lock);
    for (struct job **link = &jobs; *link; link = &(*link)->next) {
        if (*link == job) {
            *link = job->next;
            break;
        }
    }
    while (job->nr_active) {
        pthread_cond_wait(&jobs_left, &jobs_lock);
    }
}

static void run_shared(struct sgp_grid *grid, struct sgp_runner *runner, uint32_t nr_wanted)
{
    struct job job = {.grid = grid, .nr_wanted = nr_wanted};

    pthread_mutex_lock(&jobs_lock);
    helpers_start(nr_wanted);
    job_begin(&job);
    run_blocks(grid, runner);
    job_end(&job);
    pthread_mutex_unlock(&jobs_lock);
}

/* The first block tells whether the others are worth waking anybody. */
static void run_apart(struct sgp_grid *grid, struct sgp_runner *runner)
{
    uint64_t begin_ns = sgp_now_ns(), left = grid->nr_blocks - 1;

    grid->chunk = grid->nr_blocks / (nr_runners * 16ull);
    grid->chunk = grid->chunk < 1 ? 1 : grid->chunk > MAX_CHUNK ? MAX_CHUNK : grid->chunk;
    grid->next_block = 1;
    runner->error = CUDA_SUCCESS;
    sgp_runner_current = runner;
    run_block(grid, runner, 0);
    sgp_runner_current = NULL;
    if (grid->error || !left) {
        return;
    }
    if (nr_runners > 1 && (sgp_now_ns() - begin_ns) * left > WORTH_WAKING_NS) {
        run_shared(grid, runner, left < nr_runners - 1 ? (uint32_t)left : nr_runners - 1);
    } else {
        run_blocks(grid, runner);
    }
}

CUresult sgp_grid_run(struct sgp_grid *grid)
{
    struct sgp_runner *runner = sgp_runner_take();

    if (!runner) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    runner->grid = grid;
    if (!sgp_runner_team(runner, 0)) {
        sgp_runner_give(runner);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sgp_fault_handlers_install();
    if (!nr_runners) {
        nr_runners = count_runners();
    }
    grid->nr_blocks = (uint64_t)grid->grid[0] * grid->grid[1] * grid->grid[2];
    grid->runtime = &sgp_runtime_table;
    grid->chunk = 1;
    grid->next_block = 0;
    grid->error = CUDA_SUCCESS;
    if (grid->kernel->spins) {
        run_shared(grid, runner, grid->nr_blocks < nr_runners ? (uint32_t)grid->nr_blocks - 1 : nr_runners - 1);
    } else {
        run_apart(grid, runner);
    }
    sgp_runner_give(runner);
    return (CUresult)grid->error;
}
