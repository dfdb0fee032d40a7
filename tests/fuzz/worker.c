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
#include <sys/mman.h>

#include "calls/host_function.h"
#include "calls/kept_image.h"
#include "calls/objects.h"
#include "calls/span.h"
#include "calls/state.h"
#include "client/handles.h"
#include "client/state.h"
#include "ivshmem/heap.h"
#include "ivshmem/region.h"
#include "ivshmem/response.h"
#include "ivshmem/ring.h"
#include "loop/face.h"
#include "loop/serve.h"
#include "loop/state.h"
#include "loop/waiters.h"
#include "page/bell.h"
#include "page/control.h"
#include "page/grant.h"
#include "page/layout.h"
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
#include "turn/ways.h"

#define RESPONSE_BYTES (16u * sizeof(struct fgv_response))
#define CHUNK_BYTES    36864u /* one holds what a graph's node is told by */
#define NR_CHUNKS      8u
#define RECORD_BYTES   4096u
#define KEPT_BYTES     4096u
#define FIRST          3u /* as the mutator numbers them */
#define LAST_ROUNDS    200u

/* What the guest shares: responses, words of chunks, the arena, and the record at hand. */
struct shared {
    struct fgv_response responses[16];
    _Alignas(4096) uint8_t words[4096];
    uint8_t arena[NR_CHUNKS * CHUNK_BYTES];
    uint8_t pinned[2 * FGV_PAGE_BYTES];
    uint8_t record[RECORD_BYTES];
};

static struct shared *shared;
static struct fgw_control *control;
static bool tells; /* what fails, and each answer, on standard error; the error is one that nobody else makes */
static struct fgv_region region;
/* ---- a worker ---- */

static void make_page(void)
{
    int objects[FGW_CONTROL_OBJECTS];
    for (uint32_t i = 0; i < FGW_CONTROL_OBJECTS; i++) {
        objects[i] = memfd_create("control", 0);
    }
    control = fgw_control_format(objects, 6000000, true);
    fgw_control_vgpu_take(control, UINT64_C(1) << 30);
    fgw_control_worker_assign(control, (uint32_t)fgw_control_worker_take(control), 1, 0, 0);
    uint8_t *base = mmap((void *)(uintptr_t)FUZZ_REGION, FGV_REGION_MIN_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (!fgv_region_format(base, FGV_REGION_MIN_BYTES, FGV_TABLE_HASH, FGV_WAKE_POLL, "", 0, &region)) {
        abort();
    }
    shared = (struct shared *)(base + fgv_heap_allocate(&region, 0, sizeof(*shared)));
}

static struct fgv_span span_of(const void *part, uint64_t bytes)
{
    return (struct fgv_span){.offset = (uint64_t)((const uint8_t *)part - region.base), .bytes = bytes};
}

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

static struct fgw_worker *begin(const struct fuzz_start *start)
{
    char error[256];
    struct fgw_worker *worker = fgw_worker_open("", 0, error, sizeof(error));
    if (!worker || !fgw_grantee_attach(&worker->grantee, control, 0, 0)) {
        abort();
    }
    memset(shared, 0, sizeof(*shared));
    for (uint32_t i = 0; i < 16; i++) {
        shared->responses[i].state = 1;
    }
    struct fgv_client *client = &region.clients[0];
    memset(client, 0, sizeof(*client));
    client->state = FGV_CLIENT_READY;
    worker->slot = worker->grantee.slot;
    worker->client = client;
    worker->grantee.client = client;
    worker->region = region;
    worker->layout.address = (uint64_t)(uintptr_t)region.base;
    worker->layout.responses = span_of(shared->responses, sizeof(shared->responses));
    worker->layout.nr_responses = 16;
    worker->layout.chunks = span_of(shared->words, sizeof(shared->words));
    worker->layout.nr_chunks = NR_CHUNKS;
    worker->layout.chunk_bytes = CHUNK_BYTES;
    worker->layout.arena = span_of(shared->arena, sizeof(shared->arena));
    fgw_kept_image_limit(worker, KEPT_BYTES);
    slice(worker, start);
    if ((start->flags & FUZZ_PREEMPTIVE) != 0) {
        fgw_ways_init(worker);
        fgw_beside_init(worker);
    }
    return worker;
}

void fuzz_round(struct fgw_worker *worker)
{
    if (fgw_loop_has_backlog(worker)) {
        fgw_serve_backlog(worker);
    }
    fgw_host_round(worker);
    fgw_sync_poll(worker, fgw_clock_ns());
    fgw_waiters_run(worker);
    if (worker->track->behind.nr != 0) {
        fgw_host_poll(worker);
    }
    fgw_turn_poll(worker, fgw_clock_ns());
    fgw_makings_poll(worker);
    fgw_persistent_poll(worker);
    fgw_round_poll(worker, fgw_clock_ns());
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
    for (uint32_t i = 0; i < NR_CHUNKS; i++) {
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
    const uint32_t nr = head->bytes < RECORD_BYTES ? head->bytes : RECORD_BYTES;
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
static void prepare(struct fgw_worker *worker)
{
    ASK(context_create, "", .handle = FIRST, .is_primary = 1);
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
    for (uint32_t i = 0; i < LAST_ROUNDS && (worker->track->busy || fgw_loop_has_backlog(worker)); i++) {
        while (stand_run_host()) {
        }
        fuzz_round(worker);
        fgw_sync_mark_all(worker); /* as the loop does that has nothing else to do */
    }
    look_at_chunks(worker);
    stand_look(is_known, worker);
    worker->ended = "the input is over";
    fgw_worker_run(worker);
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
        worker = begin(start);
        cast(start);
        fgw_objects_restore(worker, saver.bytes, saver.nr, NULL, &trouble);
    }
    free(saver.bytes);
    return worker;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_start start;
    if (size < sizeof(start)) {
        return -1;
    }
    memcpy(&start, data, sizeof(start));
    if (!control) {
        make_page();
        tells = getenv("FUZZ_TELLS") != NULL;
    }
    stand_begin(&(struct stand_dice){.fail_at = -1}, NULL, 0);
    struct fgw_worker *worker = begin(&start);
    prepare(worker);
    cast(&start);
    uint32_t nr = 0;
    size_t at = sizeof(start);
    if (tells) {
        fprintf(stderr, "input %d\n", start.fail_at);
    }
    while (at + sizeof(struct fuzz_head) <= size && !worker->ended) {
        struct fuzz_head head;
        memcpy(&head, data + at, sizeof(head));
        at += sizeof(head);
        if (head.bytes > size - at) {
            head.bytes = (uint16_t)(size - at);
        }
        if (head.response == FUZZ_MOVE) {
            if (tells) {
                tell_answers(worker);
                fprintf(stderr, "move\n");
            }
            worker = move(worker, &start);
        } else if (head.response == FUZZ_RESTORE) {
            struct fgw_trouble trouble;
            fgw_objects_restore(worker, data + at, head.bytes, NULL, &trouble);
        } else {
            if (tells) {
                tell(worker, &head, data + at, nr++);
            }
            serve(worker, &head, data + at);
            if (tells) {
                tell_answers(worker);
            }
        }
        at += head.bytes;
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
