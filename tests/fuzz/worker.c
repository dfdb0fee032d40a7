/*
 * The worker's fuzzer: records of an input are served one after another by a worker that stands on the stand-in, as its
 * loop would, and the worker is taken down as when its client ends. Coverage-guided by libFuzzer.
 *
 * Time is counted, not read, and no thread runs beside this one: an input does the same each time. Functions of the
 * host are called between records, and what they wait for is done meanwhile: by the guest, or by the worker. Wrong
 * when: what is looked for needs two threads in the worker at once.
 */
#define _GNU_SOURCE
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls/host_function.h"
#include "calls/kept_image.h"
#include "calls/objects.h"
#include "calls/span.h"
#include "calls/state.h"
#include "calls/swap.h"
#include "client/attach.h"
#include "client/handles.h"
#include "client/state.h"
#include "daemon.h"
#include "ivshmem/heap.h"
#include "ivshmem/region.h"
#include "ivshmem/response.h"
#include "ivshmem/ring.h"
#include "loop/face.h"
#include "loop/serve.h"
#include "loop/stand.h"
#include "loop/state.h"
#include "loop/waiters.h"
#include "objects.h"
#include "page/bell.h"
#include "page/control.h"
#include "page/grant.h"
#include "page/layout.h"
#include "page/room.h"
#include "parts/making.h"
#include "parts/parts.h"
#include "parts/persistent.h"
#include "parts/state.h"
#include "parts/variant.h"
#include "stand_in.h"
#include "track/state.h"
#include "track/sync.h"
#include "turn/beside.h"
#include "turn/round.h"
#include "turn/turn.h"
#include "turn/yield.h"

#define KEPT_BYTES  4096u
#define FIRST       3u /* as the mutator numbers them */
#define LAST_ROUNDS 200u

static struct shared *shared;
static bool tells; /* what fails, and each answer, on standard error; the error is one that nobody else makes */

/* ---- a worker ---- */

static void keep_image(uint32_t owner_kind, uint64_t owner, const uint8_t *image, uint64_t image_bytes)
{
    (void)owner_kind;
    (void)owner;
    (void)image;
    (void)image_bytes;
}

static void forget_image(uint32_t owner_kind, uint64_t owner)
{
    (void)owner_kind;
    (void)owner;
}

/* In place of the thread, which makes one from PTX. It is as fast as can be. */
static void read_variant(struct fgw_making *making)
{
    if (!fgw_making_ask(making, "c", 1)) {
        abort(); /* nobody had time to want it no more */
    }
}

static void go_on_with_variant(struct fgw_making *making)
{
    if (fgw_making_address(making, 0) != 0) {
        fgw_making_compile(making, fgw_making_wish(making)->mode, "// variant", "c", 1);
    } else {
        fgw_making_fail(making, FGV_WHOLE_HIDDEN_VARIABLE);
    }
}

static void slice(struct fgw_worker *worker, const struct fuzz_start *start)
{
    const uint32_t mode = (start->flags & FUZZ_BOXES) != 0        ? FGW_SLICING_BOXES
                          : (start->flags & FUZZ_PERSISTENT) != 0 ? FGW_SLICING_PERSISTENT
                                                                  : FGW_SLICING_OFF;
    const struct fgw_slicing_settings settings = {
        .mode = mode, .threshold_blocks = 4, .least_blocks = 2, .part_ns = 10 * FUZZ_TICK_NS};
    const struct fgw_variant_maker maker = {
        .keep = keep_image, .forget = forget_image, .read = read_variant, .go_on = go_on_with_variant};
    fgw_worker_set_slicing(worker, &settings, &maker);
    fgw_worker_set_span(worker, true);
}

/* NULL: its client was refused. */
static struct fgw_worker *begin(const struct fuzz_start *start, const uint8_t *patches, size_t nr_bytes)
{
    char error[256];
    struct fgw_worker *worker = fgw_worker_open("", 0, error, sizeof(error));
    if (!worker) {
        abort();
    }
    if ((start->flags & FUZZ_BELLS) != 0) {
        fgw_client_expect_bell(worker);
    }
    if (!daemon_give_client(worker, start, patches, nr_bytes)) {
        return NULL;
    }
    fgw_kept_image_limit(worker, KEPT_BYTES);
    slice(worker, start);
    return worker;
}

/* As the loop looks where memory lies. */
static void swap(struct fgw_worker *worker)
{
    if (!fgw_room_is_short(&worker->grantee) && !worker->turn->is_displaced && !fgw_swap_has_copies(worker) &&
        !fgw_room_is_suspended(&worker->grantee)) {
        return;
    }
    const bool is_settled = !worker->loop->first_waiter && !worker->track->busy && worker->track->behind.nr == 0 &&
                            worker->track->nr_gates == 0 && fgw_track_nr_open(worker) == 0 &&
                            fgw_yield_is_settled(worker);
    fgw_swap_poll(worker, is_settled, fgw_clock_ns());
}

void fuzz_round(struct fgw_worker *worker)
{
    if (fgw_loop_has_backlog(worker)) {
        fgw_serve_backlog(worker);
    }
    fgw_host_round(worker);
    daemon_answer();
    fgw_sync_poll(worker, fgw_clock_ns());
    if (!fgw_swap_is_moving(worker)) {
        fgw_waiters_run(worker);
    }
    if (worker->track->behind.nr != 0) {
        fgw_host_poll(worker);
    }
    swap(worker);
    fgw_turn_poll(worker, fgw_clock_ns());
    fgw_makings_poll(worker);
    fgw_persistent_poll(worker);
    fgw_yield_poll(worker);
    fgw_round_poll(worker, fgw_clock_ns());
    fgw_stand_tell_bound(worker);
    if (fgw_parts_is_one(worker) && !fgw_loop_has_backlog(worker)) {
        stand_stop("the next launch would go as parts of one that was answered", "cuLaunchKernel");
    }
}

/* A driver's thread that carries out a function of the host, when it comes to that. */
static void run_host(void)
{
    if (!stand_is_busy()) {
        stand_run_host();
    }
}

/* Some replies have what the driver said of one step in them. */
static uint32_t error_in(const struct fgv_response *response)
{
    uint32_t word = response->result;
    for (uint32_t at = 0; word == 0 && at + sizeof(word) <= response->payload_bytes; at += sizeof(word)) {
        memcpy(&word, response->payload + at, sizeof(word));
        word = word == STAND_ERROR ? word : 0;
    }
    return word;
}

/* What has arrived at the guest, which waits for more. */
static void tell_answers(const struct fgw_worker *worker)
{
    for (uint32_t i = 0; i < 16; i++) {
        struct fgv_response *response = &shared->responses[i];
        if (response->state == FGV_SLOT_DONE) {
            fprintf(stderr, "answer %u %u\n", i, error_in(response));
            response->state = FGV_SLOT_IDLE;
        }
    }
    for (uint32_t i = 0; i < DAEMON_NR_CHUNKS; i++) {
        struct fgv_chunk *chunk = &((struct fgv_chunk *)(void *)shared->words)[i];
        if (chunk->state == FGV_SLOT_DONE) {
            fprintf(stderr, "chunk %u %u\n", i, chunk->result);
        }
        chunk->state = FGV_SLOT_WAITING;
    }
    if (worker->client->deferred_error != 0) {
        fprintf(stderr, "kept %u\n", worker->client->deferred_error);
    }
}

/* As a guest would that has a slot for each of its threads: the answer is to be known by it. */
static void tell(const struct fgw_worker *worker, struct fuzz_head *head, const uint8_t *bytes, uint32_t number)
{
    struct fgv_wire_header header = {0};
    memcpy(&header, bytes, head->bytes < sizeof(header) ? head->bytes : sizeof(header));
    tell_answers(worker);
    fprintf(stderr, "record %u %u\n", number % 16, header.call);
    shared->responses[number % 16].state = FGV_SLOT_WAITING;
    head->response = (uint8_t)(number % 16 * 2);
}

static void serve(struct fgw_worker *worker, const struct fuzz_head *head, const uint8_t *bytes)
{
    const uint32_t nr = head->bytes < DAEMON_RECORD_BYTES ? head->bytes : DAEMON_RECORD_BYTES;
    memcpy(shared->record, bytes, nr);
    const struct fgv_consumed record = {.payload = shared->record,
                                        .payload_bytes = nr,
                                        .response = head->response % 2 ? FGV_NO_RESPONSE : head->response / 2 % 16};
    fgw_serve_record(worker, &record);
}

static void ask(struct fgw_worker *worker, uint16_t call, const void *fixed, uint32_t bytes, const char *payload,
                uint32_t payload_bytes)
{
    const struct fgv_wire_header header = {.call = call, .context = call == FGV_CALL_context_create ? 0 : FIRST};
    const struct fuzz_head head = {.bytes = (uint16_t)(sizeof(header) + bytes + payload_bytes), .response = 1};
    uint8_t record[512];
    memcpy(record, &header, sizeof(header));
    memcpy(record + sizeof(header), fixed, bytes);
    memcpy(record + sizeof(header) + bytes, payload, payload_bytes);
    serve(worker, &head, record);
}

#define ASK(call, payload, ...)                                                                                        \
    ask(worker, FGV_CALL_##call, &(struct fgv_request_##call){__VA_ARGS__}, sizeof(struct fgv_request_##call),         \
        payload, sizeof(payload) - 1)

#define IMAGE ".version 8.0\n.target sm_90\n.address_size 64\n"

static void send_image(struct fgw_worker *worker)
{
    ASK(blob_begin, "", .blob = FIRST, .bytes = sizeof(IMAGE) - 1);
    ASK(blob_append, IMAGE, .blob = FIRST, .bytes = sizeof(IMAGE) - 1, .chunk = FGV_NO_CHUNK);
}

/* One object of most kinds, under the first of the mutator's numbers: so that an input need not find how. */
static void prepare(struct fgw_worker *worker, const struct fuzz_start *start)
{
    ASK(context_create, "", .handle = FIRST, .is_primary = 1);
    if ((start->flags & FUZZ_SPAN) != 0) {
        ASK(span_open, "", .address = STAND_SPAN_ADDRESS, .bytes = STAND_SPAN_BYTES);
    }
    send_image(worker);
    ASK(cuModuleLoadDataEx, "", .blob = FIRST, .handle = FIRST, .chunk = FGV_NO_CHUNK);
    ASK(cuModuleGetFunction, "f", .module = FIRST, .handle = FIRST, .name_bytes = 1, .chunk = FGV_NO_CHUNK);
    send_image(worker);
    ASK(cuLibraryLoadData, "", .blob = FIRST, .handle = FIRST, .chunk = FGV_NO_CHUNK);
    ASK(cuLibraryGetKernel, "k", .library = FIRST, .handle = FIRST, .name_bytes = 1, .chunk = FGV_NO_CHUNK);
    send_image(worker);
    ASK(cuStreamCreate, "", .phStream = FIRST);
    ASK(cuEventCreate, "", .phEvent = FIRST);
    ASK(graph_create, "", .flags = 0);
    ASK(cuMemAlloc_v2, "", .bytesize = 8192);
}

/* All work has ended: nobody completes a chunk any more that is not completed yet. */
static void look_at_chunks(const struct fgw_worker *worker)
{
    for (uint32_t i = 0; i < FGW_MAX_CONTEXTS; i++) {
        const struct fgw_stream *stream = worker->contexts[i] ? worker->contexts[i]->streams : NULL;
        for (; stream; stream = stream->next) {
            if (stream->first_due) {
                stand_stop("a chunk is never completed", "a guest waits for it");
            }
        }
    }
}

/* What a guest makes and the worker never makes for itself is behind a number, or it is lost until the worker ends. */
static bool is_known(void *worker, uint32_t kind, const void *object)
{
    const bool is_guests = kind == FGV_HANDLE_MODULE || kind == FGV_HANDLE_LIBRARY || kind == FGV_HANDLE_LINK ||
                           kind == FGV_HANDLE_ARRAY || kind == FGV_HANDLE_MIPMAPPED_ARRAY ||
                           kind == FGV_HANDLE_GRAPH_EXEC;
    return !is_guests || fgw_handle_of_native(worker, (enum fgv_handle_kind)kind, object).number != 0;
}

static void take_down(struct fgw_worker *worker)
{
    stand_calm();
    fgw_sync_mark_all(worker);
    daemon_calm(worker);
    for (uint32_t i = 0; i < LAST_ROUNDS && (worker->track->busy || fgw_loop_has_backlog(worker)); i++) {
        while (stand_run_host()) {
        }
        fuzz_round(worker);
        fgw_sync_mark_all(worker); /* as the loop does that has nothing else to do */
    }
    look_at_chunks(worker);
    stand_look(is_known, worker);
    worker->ended = "the input is over";
    daemon_run(worker);
}

static void cast(const struct fuzz_start *start)
{
    const struct stand_dice dice = {.seed = start->seed,
                                    .fails_of_256 = start->fails_of_256,
                                    .busy_of_256 = start->busy_of_256,
                                    .fail_at = start->fail_at,
                                    .can_fault = (start->flags & FUZZ_FAULTS) != 0,
                                    .tells = tells};
    stand_dice_cast(&dice, (uint8_t *)shared, sizeof(*shared));
}

/* What the client has is saved, and made again by another worker, on another device. */
static struct fgw_worker *move(struct fgw_worker *worker, const struct fuzz_start *start)
{
    struct fgw_saver saver = {0};
    struct fgw_trouble trouble;
    if (fgw_objects_save(worker, &saver, &trouble)) {
        take_down(worker);
        stand_finish();
        stand_begin(&(struct stand_dice){.fail_at = -1}, NULL, 0);
        worker = begin(start, NULL, 0);
        cast(start);
        fgw_objects_restore(worker, saver.bytes, saver.nr, NULL, &trouble);
    }
    free(saver.bytes);
    return worker;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One record of an input. Gives the worker, which may be another one now. */
static struct fgw_worker *play(struct fgw_worker *worker, const struct fuzz_start *start, struct fuzz_head *head,
                               const uint8_t *bytes, uint32_t *nr)
{
    struct fgw_trouble trouble;
    switch (head->response) {
    case FUZZ_MOVE:
        if (tells) {
            tell_answers(worker);
            fprintf(stderr, "move\n");
        }
        return move(worker, start);
    case FUZZ_RESTORE:
        fgw_objects_restore(worker, bytes, head->bytes, NULL, &trouble);
        return worker;
    case FUZZ_TOLD:
        daemon_tell(worker, bytes, head->bytes);
        return worker;
    case FUZZ_TAKE:
        return worker; /* it has its client */
    default:
        if (tells) {
            tell(worker, head, bytes, (*nr)++);
        }
        serve(worker, head, bytes);
        if (tells) {
            tell_answers(worker);
        }
        return worker;
    }
}

/* Reads the head of the record there, which is no longer than the rest. */
static bool head_at(const uint8_t *data, size_t size, size_t at, struct fuzz_head *head)
{
    if (at + sizeof(*head) > size) {
        return false;
    }
    memcpy(head, data + at, sizeof(*head));
    if (head->bytes > size - at - sizeof(*head)) {
        head->bytes = (uint16_t)(size - at - sizeof(*head));
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_start start;
    struct fuzz_head head;
    if (size < sizeof(start)) {
        return -1;
    }
    memcpy(&start, data, sizeof(start));
    if (!shared) {
        shared = daemon_begin();
        tells = getenv("FUZZ_TELLS") != NULL;
    }
    stand_begin(&(struct stand_dice){.fail_at = -1}, NULL, 0);
    size_t at = sizeof(start);
    const bool is_patched = head_at(data, size, at, &head) && head.response == FUZZ_TAKE;
    struct fgw_worker *worker = begin(&start, data + at + sizeof(head), is_patched ? head.bytes : 0);
    if (!worker) {
        stand_finish();
        return 0;
    }
    prepare(worker, &start);
    cast(&start);
    if (tells) {
        fprintf(stderr, "input %d\n", start.fail_at);
    }
    for (uint32_t nr = 0; !worker->ended && head_at(data, size, at, &head); at += head.bytes) {
        at += sizeof(head);
        worker = play(worker, &start, &head, data + at, &nr);
        for (uint32_t i = 0; i < head.rounds % 4u; i++) {
            run_host();
            fuzz_round(worker);
        }
    }
    if (tells) {
        tell_answers(worker);
    }
    take_down(worker);
    stand_finish();
    return 0;
}
