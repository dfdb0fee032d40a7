/*
 * See swap.h. A few extents are on their way at a time, each with an event behind its copy, so that the copy engine
 * always has the next. They go from the last one down, and come from the first one up: so the same ones go each time,
 * and the rest stays where it is.
 *
 * What goes is fingerprinted first, in a stream beside the copies. Blocks that are as they were when they were brought
 * out the last time are not copied again, and blocks of zeros never are.
 *
 * Wrong when: the context that copies are made in has failed. Its memory stays where it is then, until the client ends;
 * what was on its way back is lost, and the client with it.
 */
#include "calls/swap.h"

#include <stdlib.h>

#include "base/count.h"
#include "base/log.h"
#include "calls/fingerprint.h"
#include "calls/span.h"
#include "calls/swap_copy.h"
#include "calls/swap_memory.h"
#include "client/current.h"
#include "client/ranges.h"
#include "client/state.h"
#include "page/layout.h"
#include "page/motion.h"
#include "page/room.h"
#include "page/sleep.h"
#include "parts/parts.h"
#include "turn/state.h"
#include "turn/turn.h"

/* What the host or the driver refused is tried again after so long. */
#define AGAIN_NS UINT64_C(20000000)
/* So often it is looked at what has no place in this process yet. */
#define PREPARE_NS UINT64_C(1000000)

_Static_assert(FGW_MAX_MOVES <= FGW_PRINT_PLACES, "each move has a place for its prints");

static bool has_calls(const struct fgw_worker *worker)
{
    const struct fgv_driver *driver = &worker->driver;
    return driver->cuMemcpyDtoHAsync_v2 && driver->cuMemcpyHtoDAsync_v2 && driver->cuEventCreate &&
           driver->cuEventRecord && driver->cuEventQuery && driver->cuEventDestroy_v2 && driver->cuStreamCreate &&
           driver->cuStreamSynchronize && driver->cuStreamDestroy_v2 && driver->cuMemsetD32Async;
}

void fgw_swap_forget(struct fgw_worker *worker, uint64_t address)
{
    struct fgw_range *copy = fgw_ranges_find(&worker->calls->swap.copies, address);
    if (copy) {
        fgw_swap_copy_drop(worker, copy);
    }
}

/* ---- moves ---- */

static bool is_on_its_way(const struct fgw_swap *swap, uint64_t address)
{
    for (uint32_t i = 0; i < swap->nr_moves; i++) {
        if (swap->moves[i].address == address) {
            return true;
        }
    }
    return false;
}

/* The next one that is to go, or to come; NULL: there is none. */
static struct fgw_range *next_of(struct fgw_worker *worker, bool is_inward)
{
    struct fgw_ranges *extents = &worker->calls->span.extents;
    for (uint32_t i = 0; i < extents->nr; i++) {
        struct fgw_range *extent = &extents->items[is_inward ? i : extents->nr - 1 - i];
        if ((extent->owner == 0) == is_inward && !is_on_its_way(&worker->calls->swap, extent->address)) {
            return extent;
        }
    }
    return NULL;
}

static CUresult open_streams(struct fgw_worker *worker)
{
    struct fgw_swap *swap = &worker->calls->swap;
    const struct fgv_driver *driver = &worker->driver;
    CUresult result = swap->stream ? CUDA_SUCCESS : driver->cuStreamCreate(&swap->stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS && !swap->print_stream) {
        result = driver->cuStreamCreate(&swap->print_stream, CU_STREAM_NON_BLOCKING);
    }
    return result;
}

static void close_streams(struct fgw_worker *worker)
{
    struct fgw_swap *swap = &worker->calls->swap;
    CUstream *streams[] = {&swap->stream, &swap->print_stream};
    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
        if (*streams[i]) {
            worker->driver.cuStreamDestroy_v2(*streams[i]);
            *streams[i] = NULL;
        }
    }
}

/* Where the prints of an extent go that is to leave. NULL: it is copied without. */
static const struct fgw_printer *printer_for(const struct fgw_worker *worker, const struct fgw_range *extent)
{
    const struct fgw_swap *swap = &worker->calls->swap;
    return extent->bytes <= FGW_MOST_PRINTS * FGW_PRINT_BYTES ? fgw_swap_memory_printer(swap->memory) : NULL;
}

/* A move whose end is to be recorded. */
static struct fgw_move *new_move(struct fgw_worker *worker, const struct fgw_range *extent)
{
    struct fgw_swap *swap = &worker->calls->swap;
    struct fgw_move *move = &swap->moves[swap->nr_moves];
    *move = (struct fgw_move){.address = extent->address, .place = swap->nr_begun % FGW_MAX_MOVES};
    if (open_streams(worker) != CUDA_SUCCESS ||
        worker->driver.cuEventCreate(&move->end, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        return NULL;
    }
    swap->nr_moves++;
    swap->nr_begun++;
    return move;
}

/* The last one could not be begun: the next one has its place, and no other has. */
static void drop_move(struct fgw_worker *worker)
{
    struct fgw_swap *swap = &worker->calls->swap;
    worker->driver.cuEventDestroy_v2(swap->moves[--swap->nr_moves].end);
    swap->nr_begun--;
}

/* NULL: there are none. */
static const struct fgw_print *prints_of(const struct fgw_worker *worker, const struct fgw_move *move)
{
    const struct fgw_printer *printer = fgw_swap_memory_printer(worker->calls->swap.memory);
    return move->is_printed && printer ? fgw_printer_prints(printer, move->place) : NULL;
}

static CUresult copy_out(struct fgw_worker *worker, struct fgw_move *move, struct fgw_swap_copy *copy)
{
    const CUstream stream = worker->calls->swap.stream;
    const struct fgw_print *prints = prints_of(worker, move);
    const struct fgw_compared compared = fgw_swap_copy_compare(copy, prints);
    CUresult result = fgw_swap_copy_out(&worker->driver, copy, move->address, prints, stream, &move->copied_bytes);
    fgw_count(&worker->slot->compared_bytes, compared.bytes);
    fgw_count(&worker->slot->changed_bytes, compared.changed_bytes);
    return result == CUDA_SUCCESS ? worker->driver.cuEventRecord(move->end, stream) : result;
}

static CUresult copy_in(struct fgw_worker *worker, struct fgw_move *move, struct fgw_swap_copy *copy)
{
    const CUstream stream = worker->calls->swap.stream;
    CUresult result = fgw_swap_copy_in(&worker->driver, copy, move->address, stream, &move->copied_bytes);
    return result == CUDA_SUCCESS ? worker->driver.cuEventRecord(move->end, stream) : result;
}

enum outcome { REFUSED, LATER, BEGUN };

static enum outcome send_out(struct fgw_worker *worker, const struct fgw_range *extent)
{
    struct fgw_swap_copy *copy = fgw_swap_copy_of(worker, extent);
    const struct fgw_printer *printer = printer_for(worker, extent);
    struct fgw_move *move = copy ? new_move(worker, extent) : NULL;
    if (!move) {
        return copy ? REFUSED : LATER;
    }
    CUresult result;
    if (printer) {
        const CUstream stream = worker->calls->swap.print_stream;
        move->is_printing = move->is_printed = true;
        result = fgw_printer_submit(&worker->driver, printer, extent->address, extent->bytes, move->place, stream);
        result = result == CUDA_SUCCESS ? worker->driver.cuEventRecord(move->end, stream) : result;
    } else {
        result = copy_out(worker, move, copy);
    }
    if (result != CUDA_SUCCESS) {
        drop_move(worker);
        return REFUSED;
    }
    return BEGUN;
}

/* What was never brought out has no bytes to be brought in: memory that is made anew is as good. */
static enum outcome bring_in(struct fgw_worker *worker, struct fgw_range *extent)
{
    struct fgw_swap_copy *copy = fgw_swap_copy_of(worker, extent);
    if (!fgw_room_claim(&worker->grantee, extent->bytes)) {
        fgw_room_refuse(&worker->grantee, 0);
        return LATER;
    }
    const CUresult brought = fgw_span_bring(worker, extent);
    fgw_room_refuse(&worker->grantee, brought == CUDA_ERROR_OUT_OF_MEMORY ? extent->bytes : 0);
    if (brought != CUDA_SUCCESS) {
        fgw_room_leave(&worker->grantee, extent->bytes);
        if (brought == CUDA_ERROR_INVALID_VALUE) { /* nor will it ever, and others wait for it */
            fgw_worker_end(worker, "the driver takes no memory where the program has some");
        }
        return REFUSED;
    }
    if (copy && copy->is_filled) {
        struct fgw_move *move = new_move(worker, extent);
        if (!move || copy_in(worker, move, copy) != CUDA_SUCCESS) {
            if (move) {
                worker->driver.cuStreamSynchronize(worker->calls->swap.stream); /* of the copies that it took */
                drop_move(worker);
            }
            fgw_span_take_off(worker, extent);
            return REFUSED;
        }
    }
    worker->calls->span.nr_out--;
    return BEGUN;
}

/* The copy of the oldest has come to its end. */
static void end_first(struct fgw_worker *worker, CUresult result)
{
    struct fgw_swap *swap = &worker->calls->swap;
    const struct fgw_move move = swap->moves[0];
    struct fgw_range *extent = fgw_ranges_find(&worker->calls->span.extents, move.address);
    worker->driver.cuEventDestroy_v2(move.end);
    swap->nr_moves--;
    for (uint32_t i = 0; i < swap->nr_moves; i++) {
        swap->moves[i] = swap->moves[i + 1];
    }
    if (swap->is_inward && result != CUDA_SUCCESS) {
        fgw_worker_end(worker, "its memory could not be brought back onto the device");
    }
    if (!extent || result != CUDA_SUCCESS) {
        return; /* what was to go is where it was */
    }
    if (swap->is_inward) {
        fgw_count(&worker->slot->swapped_in_bytes, move.copied_bytes);
        return;
    }
    fgw_count(&worker->slot->swapped_out_bytes, move.copied_bytes);
    fgw_swap_copy_fill(fgw_swap_copy_of(worker, extent), prints_of(worker, &move));
    if (fgw_span_take_off(worker, extent) == CUDA_SUCCESS) {
        worker->calls->span.nr_out++;
    }
}

/* Copies of those whose prints are there; a driver that takes no copy has failed them. */
static void go_on(struct fgw_worker *worker)
{
    struct fgw_swap *swap = &worker->calls->swap;
    for (uint32_t i = 0; i < swap->nr_moves; i++) {
        struct fgw_move *move = &swap->moves[i];
        if (!move->is_printing) {
            continue;
        }
        const CUresult result = worker->driver.cuEventQuery(move->end);
        if (result == CUDA_ERROR_NOT_READY) {
            break;
        }
        const struct fgw_range *extent = fgw_ranges_find(&worker->calls->span.extents, move->address);
        move->is_printing = false;
        move->is_printed = result == CUDA_SUCCESS;
        move->has_failed = !extent || copy_out(worker, move, fgw_swap_copy_of(worker, extent)) != CUDA_SUCCESS;
    }
}

static bool end_moves(struct fgw_worker *worker)
{
    struct fgw_swap *swap = &worker->calls->swap;
    bool has_ended = false;
    go_on(worker);
    while (swap->nr_moves != 0 && !swap->moves[0].is_printing) {
        const CUresult result = worker->driver.cuEventQuery(swap->moves[0].end);
        if (result == CUDA_ERROR_NOT_READY) {
            break;
        }
        end_first(worker, swap->moves[0].has_failed ? CUDA_ERROR_UNKNOWN : result);
        has_ended = true;
    }
    return has_ended;
}

static uint64_t bytes_on_their_way(const struct fgw_worker *worker)
{
    const struct fgw_swap *swap = &worker->calls->swap;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < swap->nr_moves; i++) {
        const struct fgw_range *extent = fgw_ranges_find(&worker->calls->span.extents, swap->moves[i].address);
        bytes += extent ? extent->bytes : 0;
    }
    return bytes;
}

static bool has_to_go(const struct fgw_worker *worker)
{
    const struct fgw_swap *swap = &worker->calls->swap;
    const uint64_t resident_bytes = atomic_load_explicit(&worker->slot->resident_bytes, memory_order_relaxed);
    const uint64_t leaving_bytes = swap->nr_moves != 0 && !swap->is_inward ? bytes_on_their_way(worker) : 0;
    return resident_bytes - leaving_bytes > fgw_room_target_bytes(&worker->grantee);
}

/* The one in which prints are taken, if there is what takes them; NULL: there is none. */
static struct fgw_context *context_for_moves(const struct fgw_worker *worker)
{
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        struct fgw_context *context = worker->contexts[i];
        if (context && fgw_swap_memory_is_of(worker->calls->swap.memory, context->native)) {
            return context;
        }
    }
    return fgw_context_any(worker);
}

static bool begin_moves(struct fgw_worker *worker, bool is_inward, uint64_t now_ns)
{
    struct fgw_swap *swap = &worker->calls->swap;
    struct fgw_context *context = context_for_moves(worker);
    bool has_begun = false;
    if (!context || !has_calls(worker) || now_ns - swap->tried_ns < AGAIN_NS) {
        return false;
    }
    fgw_context_make_current(worker, context);
    swap->is_inward = is_inward;
    while (swap->nr_moves < FGW_MAX_MOVES) {
        struct fgw_range *extent = is_inward || has_to_go(worker) ? next_of(worker, is_inward) : NULL;
        const enum outcome outcome = !extent ? LATER : is_inward ? bring_in(worker, extent) : send_out(worker, extent);
        swap->tried_ns = outcome == REFUSED ? now_ns : swap->tried_ns;
        if (outcome != BEGUN) {
            break;
        }
        has_begun = true;
    }
    return has_begun;
}

/* ---- each round ---- */

/* Makes sure, ahead of need, that there is memory for each extent: for those first that would go first. */
static void prepare(struct fgw_worker *worker, bool goes, uint64_t now_ns)
{
    struct fgw_swap *swap = &worker->calls->swap;
    const struct fgw_ranges *extents = &worker->calls->span.extents;
    const struct fgw_context *context = fgw_context_any(worker);
    if ((swap->memory && swap->copies.nr >= extents->nr) || now_ns - swap->prepared_ns < PREPARE_NS) {
        return;
    }
    swap->prepared_ns = now_ns;
    const enum fgw_motion motion = fgw_motion(&worker->grantee);
    const bool is_wanted =
        goes || fgw_room_is_crowded(&worker->grantee) || motion == FGW_MOTION_PREPARE || motion == FGW_MOTION_STAND;
    if (!context || now_ns - swap->tried_ns < AGAIN_NS || !is_wanted ||
        !fgw_ranges_make_room(&swap->copies, FGW_MAX_DEVICE_RANGES)) {
        return;
    }
    if (!swap->memory) {
        swap->memory = fgw_swap_memory_new(worker, context->native);
    }
    for (uint32_t i = extents->nr; swap->memory && i-- > 0;) {
        const struct fgw_range *extent = &extents->items[i];
        if (fgw_swap_copy_of(worker, extent)) {
            continue;
        }
        swap->tried_ns = fgw_swap_memory_has_failed(swap->memory) ? now_ns : swap->tried_ns;
        void *start = fgw_swap_memory_take(swap->memory, extent->bytes);
        if (start) {
            fgw_swap_copy_keep(worker, extent, start);
        }
        return;
    }
}

static enum fgw_keeps why_kept(const struct fgw_worker *worker, bool is_settled, uint64_t now_ns)
{
    const struct fgw_calls *calls = worker->calls;
    if (calls->sharing.nr_exports != 0 || calls->sharing.nr_imports != 0) {
        return FGW_KEEPS_SHARED;
    }
    if (worker->nr_captures != 0) {
        return FGW_KEEPS_FOR_CAPTURE;
    }
    if (!is_settled) {
        return FGW_KEEPS_FOR_WORK;
    }
    return calls->swap.tried_ns != 0 && now_ns - calls->swap.tried_ns < AGAIN_NS ? FGW_KEEPS_FOR_HOST : FGW_KEEPS_NOT;
}

/* A launch goes in parts that may not begin once more on another device. It comes to its end first, alone (serve.c). */
static bool ends_launch(const struct fgw_worker *worker)
{
    return fgw_motion(&worker->grantee) == FGW_MOTION_CHANGE && fgw_parts_is_one(worker);
}

/* Tells the turn whether it may have one, and the daemon since when that keeps the client waiting. What has to go, and
 * is not kept for long, is let come to rest; else the client goes on, as that may be what ends it. */
static void tell(struct fgw_worker *worker, bool goes, uint64_t now_ns)
{
    const enum fgw_motion motion = fgw_motion(&worker->grantee);
    const bool is_displaced = worker->calls->span.nr_out != 0 || fgw_swap_is_moving(worker) || goes ||
                              motion == FGW_MOTION_STAND || (motion == FGW_MOTION_CHANGE && !ends_launch(worker)) ||
                              (fgw_sleep_is_wanted(&worker->grantee) && fgw_room_is_suspended(&worker->grantee));
    fgw_turn_set_displaced(worker, is_displaced);
    const uint64_t since_ns = atomic_load_explicit(&worker->slot->displaced_since_ns, memory_order_relaxed);
    const bool awaits = fgw_turn_awaits_memory(worker);
    if (awaits == (since_ns != 0)) {
        return;
    }
    if (since_ns != 0) {
        fgw_count(&worker->slot->displaced_ns, now_ns - since_ns);
    }
    fgw_room_await(&worker->grantee, awaits ? now_ns : 0);
}

bool fgw_swap_is_at_work(const struct fgw_worker *worker)
{
    return fgw_swap_is_moving(worker) || (worker->turn->is_displaced && has_to_go(worker)) ||
           fgw_turn_awaits_memory(worker);
}

bool fgw_swap_is_prepared(const struct fgw_worker *worker)
{
    const struct fgw_swap *swap = &worker->calls->swap;
    return swap->copies.nr >= worker->calls->span.extents.nr || !fgw_context_any(worker) ||
           (swap->memory && fgw_swap_memory_has_failed(swap->memory));
}

bool fgw_swap_is_out(const struct fgw_worker *worker)
{
    const struct fgw_calls *calls = worker->calls;
    const bool is_all_out = calls->span.nr_out == calls->span.extents.nr;
    const enum fgw_keeps keeps = atomic_load_explicit(&worker->slot->keeps, memory_order_relaxed);
    return calls->swap.nr_moves == 0 && (is_all_out || keeps == FGW_KEEPS_FOR_HOST || !fgw_context_any(worker));
}

void fgw_swap_wake(struct fgw_worker *worker)
{
    if (fgw_room_is_suspended(&worker->grantee)) {
        fgw_room_return(&worker->grantee);
    }
}

/* One at a time, as the driver takes a while, once all is back and nothing makes it leave. */
static void give_back(struct fgw_worker *worker)
{
    struct fgw_swap *swap = &worker->calls->swap;
    if (worker->calls->span.nr_out != 0 || fgw_swap_is_moving(worker) ||
        fgw_room_target_bytes(&worker->grantee) != UINT64_MAX || fgw_motion(&worker->grantee) != FGW_MOTION_NONE) {
        return;
    }
    fgw_swap_memory_end(swap->memory);
    swap->memory = NULL;
    if (swap->copies.nr != 0) {
        fgw_swap_copy_drop(worker, &swap->copies.items[swap->copies.nr - 1]);
    }
}

bool fgw_swap_poll(struct fgw_worker *worker, bool is_settled, uint64_t now_ns)
{
    struct fgw_swap *swap = &worker->calls->swap;
    bool is_news = end_moves(worker);
    if (fgw_turn_awaits_memory(worker)) {
        fgw_swap_wake(worker);
    }
    const bool goes = has_to_go(worker);
    prepare(worker, goes, now_ns);
    const enum fgw_keeps keeps = why_kept(worker, is_settled, now_ns);
    if (goes && keeps == FGW_KEEPS_NOT && (swap->nr_moves == 0 || !swap->is_inward)) {
        is_news |= begin_moves(worker, false, now_ns);
    } else if (!goes && worker->calls->span.nr_out != 0 && (swap->nr_moves == 0 || swap->is_inward)) {
        is_news |= begin_moves(worker, true, now_ns);
    }
    if (goes || worker->calls->span.nr_out == 0) {
        fgw_room_refuse(&worker->grantee, 0);
    }
    if (swap->nr_moves == 0) {
        close_streams(worker);
    }
    const enum fgw_motion motion = fgw_motion(&worker->grantee);
    const bool is_to_be_told = goes || keeps == FGW_KEEPS_SHARED || keeps == FGW_KEEPS_FOR_CAPTURE ||
                               motion == FGW_MOTION_STAND || motion == FGW_MOTION_CHANGE;
    const enum fgw_keeps told = keeps == FGW_KEEPS_NOT && ends_launch(worker) ? FGW_KEEPS_FOR_WORK : keeps;
    atomic_store_explicit(&worker->slot->keeps, is_to_be_told ? told : FGW_KEEPS_NOT, memory_order_relaxed);
    tell(worker, has_to_go(worker) && (keeps == FGW_KEEPS_NOT || keeps == FGW_KEEPS_FOR_WORK), now_ns);
    if (is_settled) {
        give_back(worker); /* a driver may wait for all work with it, what waits for the client included */
    }
    return is_news;
}

void fgw_swap_drop_context(struct fgw_worker *worker, const struct fgw_context *context)
{
    struct fgw_swap *swap = &worker->calls->swap;
    if (fgw_swap_memory_is_of(swap->memory, context->native)) {
        fgw_swap_memory_end(swap->memory);
        swap->memory = NULL; /* it is made again in another context */
    }
}

void fgw_swap_drop(struct fgw_worker *worker)
{
    struct fgw_swap *swap = &worker->calls->swap;
    while (swap->nr_moves != 0) {
        worker->driver.cuStreamSynchronize(swap->moves[0].is_printing ? swap->print_stream : swap->stream);
        end_moves(worker);
    }
    close_streams(worker);
    fgw_swap_memory_end(swap->memory);
    while (swap->copies.nr != 0) {
        fgw_swap_copy_drop(worker, &swap->copies.items[swap->copies.nr - 1]);
    }
    free(swap->copies.items);
    *swap = (struct fgw_swap){0};
}
