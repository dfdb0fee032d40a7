/*
 * What it takes to get work to an idle device and to hear of its end. It is no use of the device, and a program that
 * waits for each of its kernels would pay for it every time: some 10 us, be the kernel of 20 or of 200.
 *
 * It is measured where that is possible: a launch on an idle device is put between two events of the device's own
 * clock, for the first few and for one in many after that. What passed here, less what passed there, is the latency.
 * The device comes to the first event at once and then waits for the launch, so the time that the driver takes for the
 * launch is on both clocks, and is taken off the device's.
 *
 * Wrong when: another process uses the device meanwhile. The kernel then takes longer on both clocks alike; only a
 * switch that falls between the kernel and the second event is missed.
 */
#include "worker.h"

#define FGV_LATENCY_FIRST  5u              /* so many are measured at once */
#define FGV_LATENCY_TRIES  16u             /* in so many tries */
#define FGV_LATENCY_EVERY  64u             /* and then one of so many */
#define FGV_LATENCY_MAX_NS UINT64_C(50000) /* beyond that something else happened, the loading of a module say */
#define FGV_LATENCY_WEIGHT 8u

/* The events stay for the next time. Where nothing comes of it, again and again, it is not tried at each launch. */
static void let_go(struct fgv_worker *worker)
{
    struct fgv_latency *latency = &worker->latency;
    const bool is_hopeful = latency->nr < FGV_LATENCY_FIRST && latency->nr_tried < FGV_LATENCY_TRIES;
    latency->is_measuring = false;
    latency->nr_until_next = is_hopeful ? 1 : FGV_LATENCY_EVERY;
}

static void drop_events(struct fgv_worker *worker)
{
    struct fgv_latency *latency = &worker->latency;
    for (uint32_t i = 0; i < 2; i++) {
        if (latency->events[i]) {
            worker->driver.cuEventDestroy_v2(latency->events[i]);
            latency->events[i] = NULL;
        }
    }
    latency->context = NULL;
}

static bool record(struct fgv_worker *worker, uint32_t which, CUstream stream)
{
    CUevent *event = &worker->latency.events[which];
    return (*event || worker->driver.cuEventCreate(event, CU_EVENT_DEFAULT) == CUDA_SUCCESS) &&
           worker->driver.cuEventRecord(*event, stream) == CUDA_SUCCESS;
}

/* Events belong to a context, and are destroyed in it. */
static bool take_context(struct fgv_worker *worker)
{
    struct fgv_latency *latency = &worker->latency;
    struct fgv_context *current = worker->current;
    if (latency->context && latency->context != current) {
        fgv_context_make_current(worker, latency->context);
        drop_events(worker);
        fgv_context_make_current(worker, current);
    }
    latency->context = current;
    return worker->current == current;
}

void fgv_latency_begin(struct fgv_worker *worker, CUstream stream)
{
    struct fgv_latency *latency = &worker->latency;
    if (fgv_nr_running(worker) != 0 || worker->nr_held != 0 || worker->beside.nr != 0 || worker->nr_captures != 0 ||
        latency->is_measuring) {
        return;
    }
    if (latency->nr_until_next > 1) {
        latency->nr_until_next--;
        return;
    }
    latency->nr_tried++;
    if (!worker->driver.cuEventElapsedTime || !take_context(worker) || !record(worker, 0, stream)) {
        let_go(worker);
        return;
    }
    latency->is_measuring = true;
    latency->seq = worker->seq + 1; /* of the launch */
    latency->begun_ns = fgv_clock_ns();
}

void fgv_latency_launched(struct fgv_worker *worker, CUstream stream, CUresult launched)
{
    struct fgv_latency *latency = &worker->latency;
    if (!latency->is_measuring || latency->seq != worker->seq + 1) {
        return;
    }
    latency->launch_ns = fgv_clock_ns() - latency->begun_ns;
    if (launched != CUDA_SUCCESS || !record(worker, 1, stream)) {
        let_go(worker);
    }
}

void fgv_latency_finish(struct fgv_worker *worker, uint64_t now_ns)
{
    struct fgv_latency *latency = &worker->latency;
    float device_ms;
    if (!latency->is_measuring) {
        return;
    }
    if (latency->seq == worker->seq &&
        worker->driver.cuEventElapsedTime(&device_ms, latency->events[0], latency->events[1]) == CUDA_SUCCESS) {
        double here_ns = (double)(now_ns - latency->begun_ns);
        double latency_ns = here_ns + (double)latency->launch_ns - (double)device_ms * 1e6;
        if (latency_ns >= 0 && latency_ns < (double)FGV_LATENCY_MAX_NS) {
            uint64_t sample_ns = (uint64_t)latency_ns;
            latency->mean_ns = latency->nr == 0
                                   ? sample_ns
                                   : (latency->mean_ns * (FGV_LATENCY_WEIGHT - 1) + sample_ns) / FGV_LATENCY_WEIGHT;
            latency->nr++;
        }
    }
    let_go(worker);
}

void fgv_latency_drop_context(struct fgv_worker *worker, const struct fgv_context *context)
{
    if (worker->latency.context == context) {
        let_go(worker);
        drop_events(worker);
    }
}
