/*
 * What workers decide at each look, for test_decisions.py: a control page, three vGPUs with four workers on it, a
 * device, and a clock that is a number. A row of random numbers tells what the workers' programs do; each step is
 * written down with all that it changed on the page.
 */
#include <inttypes.h>
#include <stdio.h>

#include "decisions_device.h"
#include "page/control.h"
#include "page/grant.h"
#include "page/outlook.h"
#include "turn/beside.h"
#include "turn/charge.h"
#include "turn/moves.h"
#include "turn/queue.h"
#include "turn/turn.h"
#include "turn/way.h"

/* As serve.c asks. */
static bool may_submit(struct seat *seat, bool is_copy, enum fgw_submission *kind)
{
    struct fgw_worker *worker = &seat->worker;
    const struct fgw_request request = {.payload_bytes = happens(2)};
    if (!fgw_queue_has_room(worker)) {
        return false;
    }
    if (seat->track.nr_beside != 0 && !fgw_turn_is_user(worker) && (!is_copy || fgw_beside_is_full(worker))) {
        fgw_move_out(worker);
        return false;
    }
    if (is_copy) {
        *kind = fgw_beside_begin(worker, &request) ? FGW_SUBMIT_BESIDE : FGW_SUBMIT_COPY;
    }
    return *kind == FGW_SUBMIT_BESIDE ||
           (fgw_turn_begin(worker) && !(fgw_queue_is_deep(worker) && !fgw_queue_fits_stream(worker, &seat->stream)));
}

/* Gives how many were submitted. */
static uint32_t serve(struct seat *seat)
{
    uint32_t nr = 0;
    while (seat->backlog != 0 && nr < 6) {
        const bool is_copy = seat->program == COPIES && !happens(4);
        enum fgw_submission kind = FGW_SUBMIT_WORK;
        if (!may_submit(seat, is_copy, &kind)) {
            break;
        }
        submit(seat, kind);
        seat->backlog--;
        nr++;
    }
    fgw_turn_set_backlog(&seat->worker, seat->backlog != 0);
    return nr;
}

/* What is off the device stands still until it is back. */
static void note_off(struct seat *seat)
{
    if (fgw_turn_is_off(&seat->worker)) {
        seat->off_ns = seat->off_ns == 0 ? clock_ns : seat->off_ns;
        return;
    }
    for (uint32_t i = 0; i < seat->nr_jobs && seat->off_ns != 0; i++) {
        seat->jobs[i].end_ns += clock_ns - seat->off_ns;
    }
    seat->free_ns += seat->off_ns != 0 ? clock_ns - seat->off_ns : 0;
    seat->off_ns = 0;
}

static void live(struct seat *seat)
{
    if (seat->backlog == 0 && clock_ns >= seat->wakes_ns) {
        if (seat->program == WAITS_FOR_EACH && seat->nr_jobs != 0) {
            return;
        }
        seat->backlog = seat->program == WAITS_FOR_EACH ? 1 : 1 + (uint32_t)drawn(24);
        const uint64_t pause_ns = happens(30) ? 20000000 : seat->program == LONG ? 0 : 50000 + drawn(200000);
        seat->wakes_ns = clock_ns + pause_ns;
        fgw_turn_set_backlog(&seat->worker, true);
    }
    if (happens(400)) {
        seat->program = (enum program)drawn(NR_PROGRAMS);
    }
    if (seat->nr_jobs == 0 && seat->opens_ns == 0 && happens(100)) {
        close_gate(seat);
    }
    if (happens(300)) {
        fgw_turn_give_back(&seat->worker);
    }
    if (happens(200)) {
        fgw_turn_set_gated(&seat->worker, happens(3));
    }
}

/* A round of the loop. Gives how many submissions went. */
static uint32_t look(struct seat *seat)
{
    struct fgw_worker *worker = &seat->worker;
    uint32_t nr = 0;
    if (fgw_turn_is_off(worker)) {
        fgw_turn_poll(worker, clock_ns);
    } else {
        live(seat);
        nr = serve(seat);
        see_ends(seat);
        fgw_turn_poll(worker, clock_ns);
        if (fgw_turn_is_waiting(worker) && !fgw_turn_is_off(worker) && happens(3)) {
            if (fgw_move_enter(worker, clock_ns)) {
                nr += serve(seat);
            }
        }
    }
    note_off(seat);
    return nr;
}

static void write_down(FILE *file, uint32_t index, uint32_t nr)
{
    const struct seat *seat = &seats[index];
    const uint64_t word = atomic_load(&control->grant->word);
    fprintf(file, "%" PRIu64 " %u:%u %u%s#%u %x %x %x", clock_ns / 1000, index, nr, fgw_grant_holder(word),
            word & FGW_GRANT_CLOSED ? "c" : "", FGW_GRANT_SEQUENCE(word), (unsigned)control->grant->users.words[0],
            (unsigned)control->grant->waiting.words[0], (unsigned)control->grant->running.words[0]);
    for (uint32_t i = 0; i < NR_VGPUS; i++) {
        fprintf(file, " %" PRIu64 "+%" PRIu64, control->accounts[i]->used_ns, fgw_vgpu_held_ns(control, i));
    }
    fprintf(file, " b%u m%u r%u o%d s%" PRIu64 " w%" PRIu64 " c%d\n", nr_bells, nr_marked, seat->nr_roused,
            fgw_turn_is_off(&seat->worker), seat->worker.slot->stalled_since_ns, fgw_way_due_ns(&seat->worker),
            fgw_turn_may_change(&seat->worker));
}

static void open_seat(uint32_t index, bool has_channels, bool has_engines)
{
    struct seat *seat = &seats[index];
    *seat = (struct seat){.program = (enum program)index};
    seat->track = (struct fgw_track){.latency.soon.mean_ns = 8000, .last_finish_ns = clock_ns, .mark_every = 1};
    seat->turn = (struct fgw_turn){.above = &above, .withdrawal.set_off = has_channels ? set_off : NULL};
    seat->worker = (struct fgw_worker){.track = &seat->track, .turn = &seat->turn};
    fgw_control_worker_assign(control, index, 1, index % NR_VGPUS, 0);
    fgw_grantee_attach(&seat->worker.grantee, control, index % NR_VGPUS, index);
    seat->worker.slot = seat->worker.grantee.slot;
    if (has_engines) {
        seat->worker.driver.cuDeviceGetAttribute = attribute;
        fgw_beside_init(&seat->worker);
    }
}

/* Writes down so many steps. False: the page could not be laid out. */
bool play(const int *objects, const char *path, uint64_t seed, uint32_t nr_steps, bool is_preemptive, bool has_channels,
          bool has_engines)
{
    FILE *file = fopen(path, "w");
    control = fgw_control_format(objects, SLICE_NS, is_preemptive);
    clock_ns = UINT64_C(1000000000);
    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    nr_bells = nr_marked = 0;
    for (uint32_t i = 0; control && i < NR_VGPUS; i++) {
        const int index = fgw_control_vgpu_take(control, 0);
        fgw_control_set_standing(control, (uint32_t)index, 0, 1.0 / (1 + index), 0);
    }
    for (uint32_t i = 0; control && i < NR_WORKERS; i++) {
        open_seat(i, has_channels, has_engines);
    }
    for (uint32_t step = 0; file && control && step < nr_steps; step++) {
        const uint32_t index = (uint32_t)drawn(NR_WORKERS);
        clock_ns += happens(20) ? drawn(1000000) : happens(3) ? drawn(100000) : drawn(5000);
        if (happens(2000)) {
            fgw_control_evict(control, FGW_GRANT_SEQUENCE(atomic_load(&control->grant->word)));
        }
        write_down(file, index, look(&seats[index]));
    }
    for (uint32_t i = 0; file && control && i < NR_WORKERS; i++) {
        fgw_turn_end(&seats[i].worker);
        clock_ns += 1000000;
        fgw_charge_end(&seats[i].worker);
        write_down(file, i, 0);
    }
    if (control) {
        fgw_control_close(control);
    }
    return control && file && fclose(file) == 0;
}
