#include "track/latency.h"

#include "client/current.h"
#include "client/state.h"
#include "page/bell.h"
#include "track/running.h"
#include "track/state.h"

/* So many are measured at once, as many as the paper times in a turn (3.3.1): then the mean is good. */
#define FGW_LATENCY_FIRST 5u
/* They are given up after so many tries: a program of which nothing can be measured pays for no more events. */
#define FGW_LATENCY_TRIES 16u
/* A sample counts for an eighth of the mean, so that a stray one does little; of few samples each counts as much. */
#define FGW_LATENCY_WEIGHT 8u
/* What has more marks is long beside any latency, and each costs an event. */
#define FGW_LATENCY_MARKS 64u
/* After so long without work caches are cold and threads asleep: a sample of its own kind (docs/lab/charges.md). */
#define FGW_LATENCY_REST_NS UINT64_C(1000000)

/* One of so many is measured when the first ones have been. What takes longer than the most is something else, the
 * loading of a module say. */
struct limits {
    uint32_t every;
    uint64_t most_ns;
};

static const struct limits soon_limits = {64, 50000}, rested_limits = {32, 250000};

static const struct limits *limits_of(const struct fgw_latency *latency)
{
    return latency->measuring == &latency->rested ? &rested_limits : &soon_limits;
}

static bool is_rested(const struct fgw_worker *worker, uint64_t now_ns)
{
    return now_ns >= worker->track->last_finish_ns + FGW_LATENCY_REST_NS;
}

uint64_t fgw_latency_ns(const struct fgw_worker *worker, uint64_t now_ns)
{
    const struct fgw_latency *latency = &worker->track->latency;
    return is_rested(worker, now_ns) && latency->rested.nr != 0 ? latency->rested.mean_ns : latency->soon.mean_ns;
}

/* The events stay for the next time. Where nothing comes of it, again and again, it is not tried at each launch. */
static void let_go(struct fgw_latency *latency)
{
    struct fgw_latency_samples *samples = latency->measuring;
    const bool is_hopeful = samples->nr < FGW_LATENCY_FIRST && samples->nr_tried < FGW_LATENCY_TRIES;
    samples->nr_until_next = is_hopeful ? 1 : limits_of(latency)->every;
    latency->measuring = NULL;
}

static void drop_events(struct fgw_worker *worker)
{
    struct fgw_latency *latency = &worker->track->latency;
    for (uint32_t i = 0; i < 2; i++) {
        if (latency->events[i]) {
            worker->driver.cuEventDestroy_v2(latency->events[i]);
            latency->events[i] = NULL;
        }
    }
    latency->context = NULL;
}

/* A stream of another context than the current one is marked in its own, where an event of ours would not belong. */
static bool record(struct fgw_worker *worker, uint32_t which, CUstream stream)
{
    CUevent *event = &worker->track->latency.events[which];
    return worker->current == worker->track->latency.context &&
           (*event || worker->driver.cuEventCreate(event, CU_EVENT_DEFAULT) == CUDA_SUCCESS) &&
           worker->driver.cuEventRecord(*event, stream) == CUDA_SUCCESS;
}

/* Events belong to a context, and are destroyed in it. */
static bool take_context(struct fgw_worker *worker)
{
    struct fgw_latency *latency = &worker->track->latency;
    struct fgw_context *current = worker->current;
    if (latency->context && latency->context != current) {
        fgw_context_make_current(worker, latency->context);
        drop_events(worker);
        fgw_context_make_current(worker, current);
    }
    latency->context = current;
    return worker->current == current;
}

void fgw_latency_begin(struct fgw_worker *worker, const struct fgw_stream *stream)
{
    struct fgw_latency *latency = &worker->track->latency;
    if (fgw_nr_running(worker) != 0 || worker->track->nr_behind_hosts != 0 || worker->track->nr_beside != 0 ||
        worker->nr_captures != 0 || worker->track->kind == FGW_SUBMIT_BESIDE || latency->measuring) {
        return;
    }
    struct fgw_latency_samples *samples =
        is_rested(worker, worker->track->begun_ns) ? &latency->rested : &latency->soon;
    if (samples->nr_until_next > 1) {
        samples->nr_until_next--;
        return;
    }
    samples->nr_tried++;
    latency->measuring = samples;
    if (!worker->driver.cuEventElapsedTime || !take_context(worker) || !record(worker, 0, stream->native)) {
        let_go(latency);
        return;
    }
    latency->stream = stream;
    latency->nr_recorded = 0;
    latency->submit_ns = 0;
    latency->begun_ns = fgw_clock_ns();
}

void fgw_latency_submitted(struct fgw_worker *worker, CUresult result)
{
    struct fgw_latency *latency = &worker->track->latency;
    if (!latency->measuring || latency->submit_ns != 0) {
        return; /* not the first one */
    }
    latency->submit_ns = fgw_clock_ns() - latency->begun_ns;
    if (result != CUDA_SUCCESS) {
        let_go(latency);
    }
}

void fgw_latency_mark(struct fgw_worker *worker, const struct fgw_stream *stream)
{
    struct fgw_latency *latency = &worker->track->latency;
    if (!latency->measuring) {
        return;
    }
    if (stream != latency->stream || latency->nr_recorded++ == FGW_LATENCY_MARKS ||
        !record(worker, 1, stream->native)) {
        let_go(latency);
    }
}

static void note(struct fgw_latency_samples *samples, uint64_t sample_ns)
{
    const uint64_t known = samples->nr < FGW_LATENCY_WEIGHT ? samples->nr : FGW_LATENCY_WEIGHT - 1;
    samples->mean_ns = (samples->mean_ns * known + sample_ns) / (known + 1);
    samples->nr++;
}

void fgw_latency_finish(struct fgw_worker *worker, uint64_t now_ns)
{
    struct fgw_latency *latency = &worker->track->latency;
    float device_ms;
    if (!latency->measuring) {
        return;
    }
    if (latency->nr_recorded != 0 &&
        worker->driver.cuEventElapsedTime(&device_ms, latency->events[0], latency->events[1]) == CUDA_SUCCESS) {
        double here_ns = (double)(now_ns - latency->begun_ns);
        double latency_ns = here_ns + (double)latency->submit_ns - (double)device_ms * 1e6;
        if (latency_ns >= 0 && latency_ns < (double)limits_of(latency)->most_ns) {
            note(latency->measuring, (uint64_t)latency_ns);
        }
    }
    let_go(latency);
}

void fgw_latency_drop_context(struct fgw_worker *worker, const struct fgw_context *context)
{
    struct fgw_latency *latency = &worker->track->latency;
    if (latency->context == context) {
        if (latency->measuring) {
            let_go(latency);
        }
        drop_events(worker);
    }
}
