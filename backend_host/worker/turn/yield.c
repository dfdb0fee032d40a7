#include "turn/yield.h"

#include "base/count.h"
#include "client/current.h"
#include "client/stream.h"
#include "generated/counters.h"
#include "page/bell.h"
#include "page/grant.h"
#include "page/outlook.h"
#include "track/running.h"
#include "track/state.h"
#include "turn/change.h"
#include "turn/phase.h"
#include "turn/way.h"

/* What was written is waited for so long: a thousand times what it takes. Then it stands behind work that may wait for
 * the client, in a queue of the device that both share. */
#define SETTLE_NS UINT64_C(10000000)

/* A word that the driver refuses is none. */
static void write_word(struct fgw_worker *worker, struct fgw_context *context, uint32_t value)
{
    struct fgw_yield_word *word = &context->yield_word;
    struct fgw_context *before = worker->current;
    CUresult result = context->fault;
    fgw_context_make_current(worker, context);
    const CUstream stream = result == CUDA_SUCCESS && worker->current == context ? fgw_stream_side(worker) : NULL;
    if (stream) {
        result = worker->driver.cuStreamWriteValue32_v2(stream, word->address, value, CU_STREAM_WRITE_VALUE_DEFAULT);
    }
    if (before) {
        fgw_context_make_current(worker, before); /* that of the request at hand */
    }
    if (!stream || result != CUDA_SUCCESS) {
        word->address = 0;
        return;
    }
    word->is_zero = value == 0;
    word->is_set = value != 0;
    word->is_written = worker->turn->yields.is_written = true;
}

static struct fgw_context *with_word(const struct fgw_worker *worker, uint32_t place)
{
    struct fgw_context *context = worker->contexts[place];
    return context && context->yield_word.address != 0 ? context : NULL;
}

/* What runs has all of its memory on the device, and that is where words are. */
void fgw_yield_ask(struct fgw_worker *worker)
{
    struct fgw_yields *yields = &worker->turn->yields;
    if (!fgw_yield_can_ask(worker)) {
        return;
    }
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        struct fgw_context *context = with_word(worker, i);
        if (context && !context->yield_word.is_set) {
            yields->asked_ns = yields->asked_ns == 0 ? fgw_clock_ns() : yields->asked_ns;
            yields->is_dirty = true;
            write_word(worker, context, 1);
        }
    }
}

static void take_back(struct fgw_worker *worker)
{
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        struct fgw_context *context = with_word(worker, i);
        if (context && !context->yield_word.is_zero) {
            write_word(worker, context, 0);
        }
    }
    worker->turn->yields.is_dirty = false;
    worker->turn->yields.asked_ns = 0;
    worker->turn->yields.taken_back_ns = fgw_clock_ns();
}

bool fgw_yield_is_settled(struct fgw_worker *worker)
{
    for (uint32_t i = 0; worker->turn->yields.is_written && i < FGW_MAX_CONTEXTS; i++) {
        struct fgw_context *context = worker->contexts[i];
        if (context && context->yield_word.is_written) {
            const CUstream stream = context->side_stream; /* NULL: it is gone, with all that was in it */
            if (stream && worker->driver.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
                return false;
            }
            context->yield_word.is_written = false;
        }
    }
    worker->turn->yields.is_written = false;
    return true;
}

bool fgw_yield_is_over(struct fgw_worker *worker)
{
    if (worker->turn->yields.is_dirty) {
        take_back(worker);
    }
    return fgw_yield_is_settled(worker) || fgw_clock_ns() - worker->turn->yields.taken_back_ns > SETTLE_NS;
}

static void settle(struct fgw_worker *worker)
{
    const uint64_t end_ns = fgw_clock_ns() + SETTLE_NS;
    while (!fgw_yield_is_settled(worker) && fgw_clock_ns() < end_ns) {
        __builtin_ia32_pause();
    }
}

void fgw_yield_attach(struct fgw_worker *worker, struct fgw_context *context, uint64_t word)
{
    if (context->yield_word.address != word) {
        fgw_yield_detach(worker, context, 0, UINT64_MAX);
        context->yield_word.address = word;
        worker->turn->yields.is_dirty = true;
    }
}

void fgw_yield_detach(struct fgw_worker *worker, struct fgw_context *context, uint64_t address, uint64_t bytes)
{
    const uint64_t word = context->yield_word.address;
    if (word != 0 && word >= address && word - address < bytes) {
        settle(worker);
        context->yield_word = (struct fgw_yield_word){.is_written = context->yield_word.is_written};
    }
}

void fgw_yield_forget(struct fgw_worker *worker, uint64_t address, uint64_t bytes)
{
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        struct fgw_context *context = with_word(worker, i);
        if (context) {
            fgw_yield_detach(worker, context, address, bytes);
        }
    }
}

bool fgw_yield_can_ask(const struct fgw_worker *worker)
{
    if (fgw_nr_running(worker) == 0) {
        return false;
    }
    for (const struct fgw_stream *stream = worker->track->busy; stream; stream = stream->next_busy) {
        if (stream->context->yield_word.address != 0 && fgw_nr_in_stream(stream) != 0) {
            return true;
        }
    }
    return false;
}

static void count_end(struct fgw_worker *worker, uint64_t took_ns)
{
    static const uint64_t bounds_ns[] = FGV_NR_GAVE_WAY_BOUNDS_NS;
    uint32_t place = 0;
    while (place < sizeof(bounds_ns) / sizeof(bounds_ns[0]) && took_ns > bounds_ns[place]) {
        place++;
    }
    fgw_count(&worker->slot->nr_gave_way[place], 1);
    fgw_count(&worker->slot->gave_way_ns, took_ns);
}

/* What was taken off the device, or is given its turn again, has not given way: in its turn the word is taken back. So
 * it is for what stands behind a host function, which may be what a kernel waits for: then all are asked. */
void fgw_yield_poll(struct fgw_worker *worker)
{
    struct fgw_yields *yields = &worker->turn->yields;
    if (fgw_turn_is_off(worker)) {
        yields->asked_ns = 0;
        return;
    }
    if (yields->asked_ns != 0 && fgw_nr_running(worker) == 0) {
        count_end(worker, fgw_clock_ns() - yields->asked_ns);
        yields->asked_ns = 0;
    }
    if (worker->turn->is_displaced && !worker->turn->is_wanted_behind) {
        fgw_yield_ask(worker);
    } else if (yields->is_dirty && fgw_turn_is_user(worker) && fgw_grant_has(&worker->grantee)) {
        take_back(worker);
    }
}

static bool can_yield(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    fgw_yield_ask(worker);
    const uint64_t asked_ns = worker->turn->yields.asked_ns;
    return asked_ns != 0 && outlook->now_ns < asked_ns + FGW_STOP_NS;
}

static bool begin_yield(struct fgw_worker *worker, struct fgw_outlook *outlook)
{
    (void)outlook;
    fgw_phase_change(worker, FGW_PHASE_STOPPING);
    return true;
}

const struct fgw_way fgw_way_yield = {
    .work = FGW_WORK_NONE,
    .interrupts = fgw_yield_can_ask,
    .can = can_yield,
    .begin = begin_yield,
    .is_done = fgw_way_has_ended,
};
