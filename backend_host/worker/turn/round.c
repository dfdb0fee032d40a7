/* See round.h. */
#include "turn/round.h"

#include "client/current.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "page/bell.h"
#include "page/outlook.h"
#include "page/sets.h"
#include "page/space.h"
#include "track/running.h"
#include "track/state.h"
#include "turn/room_behind.h"

/* One round in so many has all of the device: often enough to notice a change within a second of short rounds, and two
 * in a hundred of best effort's time. A prime: of a program that does several kinds in turn each kind has. */
#define WHOLE_EVERY 53u

/* FNV-1a. */
static uint32_t mixed(uint32_t signature, uint64_t value)
{
    for (uint32_t i = 0; i < sizeof(value); i++) {
        signature = (signature ^ (uint32_t)(value >> (8 * i) & 0xff)) * UINT32_C(16777619);
    }
    return signature;
}

#define SIGNATURE_FIRST UINT32_C(2166136261)

static uint32_t with_request(uint32_t signature, const struct fgw_request *request)
{
    const uint16_t call = request->header->call;
    signature = mixed(signature, call);
    if (call == FGV_CALL_cuLaunchKernel) {
        const struct fgv_request_cuLaunchKernel *fixed = request->fixed;
        signature = mixed(signature, fixed->function);
        signature = mixed(signature, (uint64_t)fixed->grid[0] << 32 | fixed->grid[1]);
        signature = mixed(signature, fixed->grid[2]);
    }
    return signature;
}

/* Room is told before it is written, and that it is taken back afterwards. So if another program of this vGPU, or the
 * daemon, takes it back at the same time, nobody goes on believing in room that is not there. A word that the driver
 * refuses is none. Best effort that cannot give way heeds what is told here (space_gate.h). */
static void set_word(struct fgw_worker *worker, CUstream stream, uint32_t split)
{
    struct fgw_rounds *rounds = &worker->turn->rounds;
    if (split != 0) {
        fgw_space_tell_split(&worker->grantee, split);
    }
    if (rounds->word != 0 && worker->driver.cuStreamWriteValue32_v2(stream, rounds->word, split,
                                                                    CU_STREAM_WRITE_VALUE_DEFAULT) != CUDA_SUCCESS) {
        rounds->word = 0;
    }
    if (split == 0) {
        fgw_space_tell_split(&worker->grantee, 0);
    }
}

/* The worker's own, in which nothing waits for work of the program's. NULL: no context is in order. */
static CUstream side_of(struct fgw_worker *worker)
{
    struct fgw_context *context = worker->current;
    for (uint32_t i = 0; !context && i < FGW_MAX_CONTEXTS; i++) {
        context = worker->contexts[i];
    }
    if (context && context->fault == CUDA_SUCCESS) {
        fgw_context_make_current(worker, context);
    }
    return context && worker->current == context ? fgw_stream_side(worker) : NULL;
}

static void set_word_on_side(struct fgw_worker *worker, uint32_t split)
{
    struct fgw_rounds *rounds = &worker->turn->rounds;
    rounds->side = rounds->word != 0 ? side_of(worker) : NULL;
    rounds->word = rounds->side ? rounds->word : 0;
    set_word(worker, rounds->side, split);
}

/* Nothing of the program's may keep what comes into one of its streams now. */
static bool has_nothing_waiting(const struct fgw_worker *worker)
{
    const struct fgw_track *track = worker->track;
    return fgw_track_nr_open(worker) == 0 && track->nr_gates == 0 && track->behind.nr == 0;
}

/* In the stream of the round, so that its first work finds what stands there before it; in the worker's own while that
 * one may not have come to the last word, as two streams keep no order, or while the round's may have to wait. */
static void ask(struct fgw_worker *worker, const struct fgw_stream *stream, uint32_t split)
{
    const CUstream side = worker->turn->rounds.side;
    if (side && worker->driver.cuStreamQuery(side) == CUDA_ERROR_NOT_READY) {
        set_word(worker, side, split);
    } else if (stream && has_nothing_waiting(worker)) {
        worker->turn->rounds.side = NULL;
        set_word(worker, stream->native, split);
    } else {
        set_word_on_side(worker, split);
    }
}

/* `stream`: of its first work, which is about to be submitted; NULL: that had waited, and goes on. */
static void begin(struct fgw_worker *worker, const struct fgw_stream *stream)
{
    struct fgw_rounds *rounds = &worker->turn->rounds;
    rounds->had_waited = !stream;
    rounds->began_ns = fgw_clock_ns();
    if (rounds->ended_ns != 0 && rounds->began_ns > rounds->ended_ns) {
        fgv_habit_note_wait(&rounds->pauses, rounds->began_ns - rounds->ended_ns);
    }
    rounds->signature = SIGNATURE_FIRST;
    const bool is_whole = ++rounds->nr % WHOLE_EVERY == 0;
    const uint32_t wanted = is_whole ? FGW_SPLIT_WHOLE : fgw_space_split(&worker->grantee);
    const uint32_t split = fgw_space_is_urgent(worker->grantee.control, worker->grantee.number) ? wanted : 0;
    if (split != rounds->split || split != fgw_space_told_split(&worker->grantee)) {
        ask(worker, stream, split);
    }
    rounds->split = split;
    rounds->was_given_back = false;
    rounds->asked = rounds->word != 0 ? split : 0;
}

void fgw_round_know_word(struct fgw_worker *worker, uint64_t address)
{
    worker->turn->rounds.word = address;
}

/* All of it has ended, as far as that has been seen. */
static void end_if_over(struct fgw_worker *worker)
{
    struct fgw_rounds *rounds = &worker->turn->rounds;
    const uint64_t end_ns = worker->track->last_finish_ns;
    if (rounds->began_ns == 0 || fgw_nr_running(worker) != 0) {
        return;
    }
    if (end_ns > rounds->began_ns && !rounds->had_waited) {
        fgw_space_note_round(&worker->grantee, rounds->signature, rounds->asked, end_ns - rounds->began_ns);
    }
    rounds->ended_ns = end_ns > rounds->began_ns ? end_ns : rounds->began_ns;
    rounds->began_ns = 0;
}

void fgw_round_submit(struct fgw_worker *worker, struct fgw_stream *stream, const struct fgw_request *request)
{
    struct fgw_rounds *rounds = &worker->turn->rounds;
    if (!fgw_space_is_critical(&worker->grantee) || stream->context->fault != CUDA_SUCCESS ||
        (worker->nr_captures != 0 && fgw_stream_is_captured(worker, stream))) {
        return;
    }
    end_if_over(worker);
    if (rounds->began_ns == 0) {
        begin(worker, stream);
    }
    rounds->signature = with_request(rounds->signature, request);
}

static void take_back(struct fgw_worker *worker)
{
    set_word_on_side(worker, 0);
    worker->turn->rounds.split = 0;
}

/* The round began while its vGPU was urgent, which it is no more. */
static bool is_beyond_bound(const struct fgw_worker *worker)
{
    const struct fgw_rounds *rounds = &worker->turn->rounds;
    return rounds->split != 0 && !rounds->was_given_back &&
           !fgw_space_is_urgent(worker->grantee.control, worker->grantee.number);
}

/* Another program of this vGPU may be at work, whose room this is, too. */
static bool is_vgpu_idle(const struct fgw_worker *worker)
{
    return !fgw_set_has_common(&worker->grantee.decided->members, &worker->grantee.control->grant->running);
}

uint64_t fgw_round_due_in_ns(const struct fgw_worker *worker, uint64_t now_ns)
{
    const struct fgw_rounds *rounds = &worker->turn->rounds;
    if (rounds->split == 0 || rounds->began_ns != 0) {
        return UINT64_MAX;
    }
    const uint64_t due_ns = rounds->ended_ns + fgw_room_stands_ns(&rounds->pauses);
    if (now_ns < due_ns) {
        return due_ns - now_ns;
    }
    return is_vgpu_idle(worker) ? 0 : FGW_ROOM_NS;
}

void fgw_round_poll(struct fgw_worker *worker, uint64_t now_ns)
{
    struct fgw_rounds *rounds = &worker->turn->rounds;
    end_if_over(worker);
    if (fgw_space_is_critical(&worker->grantee) && rounds->began_ns == 0 && fgw_nr_running(worker) != 0) {
        begin(worker, NULL);
    }
    if (fgw_round_due_in_ns(worker, now_ns) == 0) {
        take_back(worker);
    } else if (is_beyond_bound(worker)) {
        /* What was asked may come behind this, as it is in another stream: behind the round it is taken back again. */
        set_word_on_side(worker, 0);
        rounds->was_given_back = true;
        rounds->asked = 0;
    }
}

void fgw_round_context_ends(struct fgw_worker *worker, const struct fgw_context *context)
{
    struct fgw_rounds *rounds = &worker->turn->rounds;
    if (rounds->split != 0 && fgw_context_count(worker) == 1) {
        take_back(worker);
    }
    if (rounds->side && rounds->side == context->side_stream) {
        worker->driver.cuStreamSynchronize(context->side_stream); /* nothing there waits for work of the program's */
        rounds->side = NULL;
    }
}

void fgw_round_end(struct fgw_worker *worker)
{
    if (worker->turn->rounds.split != 0) {
        take_back(worker);
    }
}
