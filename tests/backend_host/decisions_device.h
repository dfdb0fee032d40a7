/* What the workers of decisions.c have, their programs do and the device runs: what each worker has there in a row,
 * whatever others have. */
#ifndef TESTS_DECISIONS_DEVICE_H
#define TESTS_DECISIONS_DEVICE_H

#include "channels/channels.h"
#include "page/bell.h"
#include "page/control.h"
#include "track/due.h"
#include "track/running.h"
#include "track/sync.h"
#include "turn/beside.h"
#include "turn/charge.h"
#include "turn/turn.h"

#define NR_WORKERS 4u
#define NR_VGPUS   3u
#define MOST_WORK  600u
#define COPY_BYTES (UINT64_C(8) << 20)
#define SLICE_NS   UINT64_C(3000000)

/* The programs: kernels that are waited for one by one, rows of long ones, ones in parts, and copies among kernels. */
enum program { WAITS_FOR_EACH, LONG, IN_PARTS, COPIES, NR_PROGRAMS };

struct job {
    uint64_t end_ns;
    bool is_copy;
};

struct seat {
    struct fgw_worker worker;
    struct fgw_track track;
    struct fgw_turn turn;
    struct fgw_stream stream;
    struct job jobs[MOST_WORK]; /* in turns */
    uint32_t nr_jobs;
    uint64_t beside_end_ns;
    uint64_t free_ns; /* its last job ends */
    uint64_t stopped_ns, off_ns, wakes_ns;
    struct fgw_mark gate; /* what comes behind it waits until then; 0: it is open */
    uint64_t opens_ns;
    uint32_t backlog, nr_roused;
    enum program program;
};

static struct seat seats[NR_WORKERS];
static struct fgw_control *control;
static uint64_t clock_ns, random_state;
static uint32_t nr_bells, nr_marked;

uint64_t fgw_clock_ns(void)
{
    return clock_ns;
}

void fgw_bell_ring(_Atomic uint32_t *bell)
{
    (void)bell;
    nr_bells++;
}

void fgw_control_ring_bell(struct fgw_control *at)
{
    (void)at;
}

void fgw_log(const char *format, ...)
{
    (void)format;
}

static struct seat *seat_of(const struct fgw_worker *worker)
{
    return (struct seat *)worker; /* its first member */
}

void fgw_sync_mark_all(struct fgw_worker *worker)
{
    (void)worker;
    nr_marked++;
}

uint32_t fgw_sync_set_beside(struct fgw_worker *worker)
{
    struct seat *seat = seat_of(worker);
    const uint32_t nr = seat->nr_jobs;
    seat->track.nr_beside += nr;
    seat->beside_end_ns = seat->free_ns;
    seat->track.nr_unfinished = seat->track.nr_copies = seat->nr_jobs = 0;
    return nr;
}

uint64_t fgw_copy_bytes(const struct fgw_request *request)
{
    (void)request;
    return COPY_BYTES;
}

bool fgw_copy_is_pinned(const struct fgw_request *request)
{
    return request->payload_bytes != 0;
}

static uint64_t drawn(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) % below;
}

static bool happens(uint64_t once_in)
{
    return drawn(once_in) == 0;
}

static bool is_in_parts(const struct fgw_worker *worker)
{
    const struct seat *seat = seat_of(worker);
    return seat->program == IN_PARTS && seat->backlog != 0;
}

static uint64_t stop(struct fgw_worker *worker)
{
    struct seat *seat = seat_of(worker);
    if (seat->program != IN_PARTS || seat->nr_jobs == 0) {
        return 0;
    }
    if (seat->stopped_ns == 0) {
        seat->stopped_ns = clock_ns;
        for (uint32_t i = 0; i < seat->nr_jobs; i++) { /* half of them hear of it within the time that is waited */
            const uint64_t end_ns = clock_ns + drawn(4000000);
            seat->jobs[i].end_ns = seat->jobs[i].end_ns < end_ns ? seat->jobs[i].end_ns : end_ns;
        }
    }
    return seat->stopped_ns;
}

static void rouse(struct fgw_worker *worker)
{
    seat_of(worker)->nr_roused++;
}

static const struct fgw_turn_above above = {.is_in_parts = is_in_parts, .stop = stop, .rouse = rouse};

static struct fgv_channels_answer set_off(bool is_off)
{
    if (is_off && happens(16)) {
        return (struct fgv_channels_answer){.error = 1};
    }
    clock_ns += 300000 + drawn(300000);
    return (struct fgv_channels_answer){.error = 0};
}

static CUresult attribute(int *value, CUdevice_attribute which, CUdevice device)
{
    (void)which, (void)device;
    *value = 1;
    return CUDA_SUCCESS;
}

static uint64_t length_ns(const struct seat *seat, bool is_copy)
{
    switch (is_copy ? COPIES : seat->program) {
    case WAITS_FOR_EACH:
        return 20000 + drawn(200000);
    case LONG:
        return happens(8) ? 9000000 : 100000 + drawn(900000);
    case IN_PARTS:
        return 400000 + drawn(400000);
    default:
        return 100000 + drawn(300000);
    }
}

static void submit(struct seat *seat, enum fgw_submission kind)
{
    struct fgw_track *track = &seat->track;
    const bool is_copy = kind != FGW_SUBMIT_WORK;
    const uint64_t from_ns = seat->free_ns > clock_ns ? seat->free_ns : clock_ns;
    seat->free_ns = from_ns + length_ns(seat, is_copy);
    track->is_last_copy = is_copy;
    if (kind == FGW_SUBMIT_BESIDE) {
        track->nr_beside++;
        seat->beside_end_ns = seat->free_ns;
        fgw_beside_submitted(&seat->worker);
        return;
    }
    const bool was_empty = track->nr_unfinished == 0;
    seat->jobs[seat->nr_jobs++] = (struct job){.end_ns = seat->free_ns, .is_copy = is_copy};
    track->nr_unfinished++;
    track->nr_copies += is_copy;
    if (is_copy) {
        fgw_beside_submitted(&seat->worker);
    }
    seat->stopped_ns = 0;
    if (seat->opens_ns != 0) {
        seat->jobs[seat->nr_jobs - 1].end_ns = UINT64_MAX;
        seat->stream.nr_unmarked++;
        return;
    }
    fgw_charge_started(&seat->worker, was_empty, track->begun_ns);
}

static void close_gate(struct seat *seat)
{
    seat->opens_ns = clock_ns + drawn(2000000);
    seat->stream.first_mark = &seat->gate;
    seat->track.busy = &seat->stream;
    seat->track.nr_gates = 1;
}

/* What was behind it begins. */
static void open_gate(struct seat *seat)
{
    seat->free_ns = clock_ns;
    for (uint32_t i = 0; i < seat->nr_jobs; i++) {
        seat->free_ns += length_ns(seat, seat->jobs[i].is_copy);
        seat->jobs[i].end_ns = seat->free_ns;
    }
    seat->opens_ns = 0;
    seat->stream.first_mark = NULL;
    seat->stream.nr_unmarked = 0;
    seat->track.busy = NULL;
    seat->track.nr_gates = 0;
}

/* As fgw_sync_poll does. */
static void see_ends(struct seat *seat)
{
    struct fgw_track *track = &seat->track;
    uint32_t nr = 0, nr_copies = 0;
    if (seat->opens_ns != 0 && clock_ns >= seat->opens_ns) {
        open_gate(seat);
    }
    while (nr < seat->nr_jobs && seat->jobs[nr].end_ns <= clock_ns) {
        nr_copies += seat->jobs[nr++].is_copy;
    }
    for (uint32_t i = nr; i < seat->nr_jobs; i++) {
        seat->jobs[i - nr] = seat->jobs[i];
    }
    seat->nr_jobs -= nr;
    if (track->nr_beside != 0 && seat->beside_end_ns <= clock_ns) {
        track->nr_beside = 0;
    }
    track->nr_unfinished -= nr;
    track->nr_copies -= nr_copies;
    if (nr != 0) {
        if (clock_ns > track->last_finish_ns) {
            fgw_due_note(&seat->worker, nr, nr_copies, clock_ns);
            track->last_finish_ns = clock_ns;
        }
        fgw_charge_finished(&seat->worker, nr, clock_ns);
    }
    track->polled_ns = clock_ns;
    if (fgw_nr_running(&seat->worker) != 0) {
        fgw_charge_started(&seat->worker, false, track->begun_ns);
    }
}

#endif
