/*
 * The other side, for tests of the guest library alone: takes requests out of a ring and answers them, from a device
 * that is an array.
 *
 *     answerer REGION [refuse CODE | window FILE BYTES]
 *
 * With a window it has so many bytes of that file behind the region, and says so when it is asked to map them.
 *
 * It says when it listens on standard error, and prints one line for each record, so that a test can look at order and
 * content. Sets steer it: a memset of 0xEE fails later, 0xDD is an execution error, 0xCC kills the worker, 0xBB makes
 * kernels print. 0xAA silences the daemon, and the next synchronisation takes longer than a silent daemon is waited
 * for; 0xAB silences both.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cuda_api/types.h"
#include "cuda_api/wire.h"
#include "ivshmem/region.h"
#include "ivshmem/response.h"
#include "ivshmem/ring.h"

#define DEVICE_BASE  UINT64_C(0x300000000000)
#define DEVICE_BYTES (64u << 20)
#define PLACE_BYTES  (UINT64_C(1) << 32) /* a region and a window fit in */

static struct fgv_region region;
static struct fgv_client_layout layout;
static struct fgv_client *client;
static uint8_t *device;
static uint64_t device_used;
static uint64_t blob_bytes, blob_done, blob_sum;
static uint64_t nr_contexts;
static bool is_daemon_silent;
static uint16_t held = FGV_NO_RESPONSE; /* the answer that takes long */
static uint64_t held_until_ns;
static uint64_t window_bytes;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void answer(const struct fgv_consumed *record, CUresult result, const void *reply, uint32_t reply_bytes)
{
    if (record->response != FGV_NO_RESPONSE) {
        fgv_respond(&region, &layout, record->response, (uint32_t)result, reply, reply_bytes);
    }
}

static uint8_t *arena(uint64_t offset)
{
    return region.base + layout.arena.offset + offset;
}

static void copy_to(const struct fgv_consumed *record, const void *fixed, const uint8_t *payload)
{
    const struct fgv_request_cuMemcpyHtoDAsync_v2 *request = fixed;
    const uint8_t *from = request->place == FGV_PLACE_INLINE  ? payload
                          : request->place == FGV_PLACE_ARENA ? arena(request->source)
                                                              : region.base + (request->source - layout.address);
    memcpy(device + (request->destination - DEVICE_BASE), from, request->bytes);
    printf("to place %u bytes %" PRIu64 " stream %" PRIx64 "\n", request->place, request->bytes, request->stream);
    if (request->place == FGV_PLACE_ARENA) {
        printf("to device: chunk %u\n", request->chunk);
        fgv_chunk_complete(&region, &layout, request->chunk, CUDA_SUCCESS);
    }
    answer(record, CUDA_SUCCESS, NULL, 0);
}

static void copy_from(const struct fgv_consumed *record, const void *fixed)
{
    const struct fgv_request_cuMemcpyDtoHAsync_v2 *request = fixed;
    uint8_t *to = request->place == FGV_PLACE_ARENA ? arena(request->destination)
                                                    : region.base + (request->destination - layout.address);
    memcpy(to, device + (request->source - DEVICE_BASE), request->bytes);
    printf("from place %u bytes %" PRIu64 " stream %" PRIx64 "\n", request->place, request->bytes, request->stream);
    if (request->place == FGV_PLACE_ARENA) {
        printf("from device: chunk %u\n", request->chunk);
        fgv_chunk_complete(&region, &layout, request->chunk, CUDA_SUCCESS);
    }
    answer(record, CUDA_SUCCESS, NULL, 0);
}

static void blob(uint16_t call, const void *fixed, const uint8_t *payload)
{
    if (call == FGV_CALL_blob_begin) {
        blob_bytes = ((const struct fgv_request_blob_begin *)fixed)->bytes;
        blob_done = blob_sum = 0;
        return;
    }
    const struct fgv_request_blob_append *request = fixed;
    const uint8_t *from = request->place == FGV_PLACE_INLINE ? payload : arena(request->source);
    for (uint32_t i = 0; i < request->bytes; i++) {
        blob_sum = blob_sum * 31 + from[i];
    }
    blob_done += request->offset == blob_done ? request->bytes : 0;
    if (request->place == FGV_PLACE_ARENA) {
        fgv_chunk_complete(&region, &layout, request->chunk, CUDA_SUCCESS);
    }
}

static void function_get(const struct fgv_consumed *record, const void *fixed, const uint8_t *payload)
{
    const struct fgv_request_cuModuleGetFunction *request = fixed;
    static const uint32_t parameters[4] = {0, 8, 8, 4};
    struct fgv_reply_cuModuleGetFunction reply = {.nr_parameters = 2, .parameter_bytes = 12};
    reply.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 512;
    reply.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 1000;
    memcpy(arena((uint64_t)request->chunk * layout.chunk_bytes), parameters, sizeof(parameters));
    bool is_there = request->name_bytes == 6 && memcmp(payload, "kernel", 6) == 0;
    printf("function %.*s\n", (int)request->name_bytes, (const char *)payload);
    answer(record, is_there ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND, &reply, sizeof(reply));
}

static void launch(const void *fixed, const uint8_t *payload)
{
    const struct fgv_request_cuLaunchKernel *request = fixed;
    uint64_t first;
    uint32_t second;
    memcpy(&first, payload, 8);
    memcpy(&second, payload + 8, 4);
    printf("launch grid %u %u %u block %u %u %u shared %u stream %" PRIx64 " parameters %u: %" PRIx64
           " %x flags %u attributes %u\n",
           request->grid[0], request->grid[1], request->grid[2], request->block[0], request->block[1],
           request->block[2], request->shared_bytes, request->stream, request->nr_parameter_bytes, first, second,
           request->flags, request->nr_attributes);
}

static void set(const void *fixed)
{
    const struct fgv_request_cuMemsetD8Async *request = fixed;
    printf("set %x stream %" PRIx64 "\n", request->uc, request->hStream);
    if (request->uc == 0xee) {
        atomic_store(&client->deferred_error, CUDA_ERROR_INVALID_VALUE);
    }
    if (request->uc == 0xdd) {
        atomic_store(&client->sticky_error, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    if (request->uc == 0xbb) {
        atomic_store(&client->output_pending, 1);
    }
    if (request->uc == 0xaa) {
        is_daemon_silent = true;
    }
    if (request->uc == 0xab) {
        while (atomic_load(&client->state) == FGV_CLIENT_READY) {
            usleep(10000);
        }
        exit(0);
    }
    if (request->uc == 0xcc) {
        atomic_store(&client->state, FGV_CLIENT_DEAD);
        fflush(stdout);
        _exit(0);
    }
    memset(device + (request->dstDevice - DEVICE_BASE), request->uc, request->N);
}

/* The first one is answered behind the second one, or when none has come for long. */
static void attach(const struct fgv_consumed *record, const void *fixed)
{
    static bool is_later;
    printf("attach %" PRIx64 "\n", ((const struct fgv_request_yield_attach *)fixed)->word - DEVICE_BASE);
    if (!is_later) {
        is_later = true;
        held = record->response;
        held_until_ns = now_ns() + 300000000u;
        return;
    }
    answer(record, CUDA_SUCCESS, NULL, 0);
    if (held != FGV_NO_RESPONSE) {
        held_until_ns = now_ns() + 50000000u;
    }
}

static void print_fetch(const struct fgv_consumed *record, const void *fixed)
{
    const struct fgv_request_output_fetch *request = fixed;
    static const char words[] = "a kernel's words\n";
    if (request->stream != 0) {
        abort(); /* nothing was pending there */
    }
    struct fgv_reply_output_fetch reply = {.bytes = sizeof(words) - 1};
    memcpy(arena((uint64_t)request->chunk * layout.chunk_bytes), words, sizeof(words) - 1);
    answer(record, CUDA_SUCCESS, &reply, sizeof(reply));
}

static void serve(const struct fgv_consumed *record)
{
    const struct fgv_wire_header *header = (const void *)record->payload;
    const uint8_t *fixed = record->payload + sizeof(*header);
    switch (header->call) {
    case FGV_CALL_context_create:
        nr_contexts++;
        printf("context %" PRIu64 "\n", nr_contexts);
        answer(record, CUDA_SUCCESS, NULL, 0);
        return;
    case FGV_CALL_window_map: {
        uint64_t needed = ((const struct fgv_request_window_map *)(const void *)fixed)->needed_bytes;
        struct fgv_reply_window_map reply = {.mapped_bytes = needed < window_bytes ? needed : window_bytes};
        printf("window %" PRIu64 "\n", needed);
        answer(record, CUDA_SUCCESS, &reply, sizeof(reply));
        return;
    }
    case FGV_CALL_cuMemAlloc_v2: {
        struct fgv_reply_cuMemAlloc_v2 reply = {.dptr = DEVICE_BASE + device_used};
        uint64_t bytes = ((const struct fgv_request_cuMemAlloc_v2 *)(const void *)fixed)->bytesize;
        device_used += (bytes + 255) & ~UINT64_C(255);
        answer(record, device_used > DEVICE_BYTES ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS, &reply, sizeof(reply));
        return;
    }
    case FGV_CALL_cuMemAllocFromPoolAsync: {
        const struct fgv_request_cuMemAllocFromPoolAsync *request = (const void *)fixed;
        struct fgv_reply_cuMemAllocFromPoolAsync reply = {.address = DEVICE_BASE + device_used};
        device_used += request->bytes;
        printf("take %" PRIu64 " for %" PRIx64 "\n", request->bytes, request->stream);
        answer(record, CUDA_SUCCESS, &reply, sizeof(reply));
        return;
    }
    case FGV_CALL_cuMemFreeAsync: {
        const struct fgv_request_cuMemFreeAsync *request = (const void *)fixed;
        printf("give %" PRIu64 " in %" PRIx64 "\n", (uint64_t)(request->address - DEVICE_BASE), request->stream);
        return;
    }
    case FGV_CALL_cuStreamDestroy_v2:
        printf("destroy\n");
        return;
    case FGV_CALL_cuMemcpyHtoDAsync_v2:
        copy_to(record, fixed, fixed + sizeof(struct fgv_request_cuMemcpyHtoDAsync_v2));
        return;
    case FGV_CALL_cuMemcpyDtoHAsync_v2:
        copy_from(record, fixed);
        return;
    case FGV_CALL_cuMemsetD8Async:
        set(fixed);
        return;
    case FGV_CALL_blob_begin:
    case FGV_CALL_blob_append:
        blob(header->call, fixed, fixed + sizeof(struct fgv_request_blob_append));
        return;
    case FGV_CALL_cuLibraryLoadData:
    case FGV_CALL_cuModuleLoadDataEx: {
        struct fgv_reply_cuModuleLoadDataEx reply = {.said = {.verdict = CUDA_SUCCESS}};
        printf("image bytes %" PRIu64 " done %" PRIu64 " sum %" PRIx64 "\n", blob_bytes, blob_done, blob_sum);
        answer(record, blob_bytes == blob_done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE, &reply, sizeof(reply));
        return;
    }
    case FGV_CALL_cuModuleGetFunction:
        function_get(record, fixed, fixed + sizeof(struct fgv_request_cuModuleGetFunction));
        return;
    case FGV_CALL_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags: {
        struct fgv_reply_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags reply = {.numBlocks = 2};
        answer(record, CUDA_SUCCESS, &reply, sizeof(reply));
        return;
    }
    case FGV_CALL_cuLaunchKernel:
        launch(fixed, fixed + sizeof(struct fgv_request_cuLaunchKernel));
        answer(record, CUDA_ERROR_INVALID_VALUE, NULL, 0); /* to one that asks, since it takes too much */
        return;
    case FGV_CALL_yield_attach:
        attach(record, fixed);
        return;
    case FGV_CALL_yield_detach: {
        const struct fgv_request_yield_detach *request = (const void *)fixed;
        printf("detach %" PRIx64 " bytes %" PRIu64 "\n", request->address - DEVICE_BASE, request->bytes);
        answer(record, CUDA_SUCCESS, NULL, 0);
        return;
    }
    case FGV_CALL_output_fetch:
        atomic_store(&client->output_pending, 0);
        print_fetch(record, fixed);
        return;
    case FGV_CALL_cuCtxSynchronize:
        if (is_daemon_silent && held == FGV_NO_RESPONSE) {
            held = record->response;
            held_until_ns = now_ns() + FGV_HOST_LOST_NS + 1000000000u;
            return;
        }
        answer(record, CUDA_SUCCESS, NULL, 0);
        return;
    default:
        printf("call %u\n", header->call);
        answer(record, CUDA_SUCCESS, NULL, 0);
    }
}

static uint32_t client_find(void)
{
    for (;;) {
        for (uint32_t i = 0; i < FGV_NR_CLIENTS; i++) {
            if (atomic_load(&region.clients[i].state) == FGV_CLIENT_HELLO) {
                return i;
            }
        }
        atomic_fetch_add(&region.header->host_beat, 1);
        usleep(1000);
    }
}

/* At `at`, or anywhere when that is NULL. */
static uint8_t *map_file(const char *path, uint8_t *at, off_t *bytes)
{
    int file = open(path, O_RDWR);
    *bytes = lseek(file, 0, SEEK_END);
    return mmap(at, (size_t)*bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (!at ? 0 : MAP_FIXED), file, 0);
}

/* The region, and what is behind it. */
static uint8_t *map_all(int argc, char **argv, off_t *bytes)
{
    if (argc < 5 || strcmp(argv[2], "window") != 0) {
        return map_file(argv[1], NULL, bytes);
    }
    window_bytes = strtoull(argv[4], NULL, 0);
    uint8_t *base = mmap(NULL, PLACE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    off_t file_bytes;
    base = map_file(argv[1], base, bytes);
    return map_file(argv[3], base + *bytes, &file_bytes) == base + *bytes ? base : MAP_FAILED;
}

int main(int argc, char **argv)
{
    off_t bytes;
    uint8_t *base = map_all(argc, argv, &bytes);
    if (base == MAP_FAILED || fgv_region_check(base, (uint64_t)bytes, FGV_TABLE_HASH, &region) != FGV_REGION_OK) {
        return 2;
    }
    device = malloc(DEVICE_BYTES);
    atomic_store(&region.header->host_state, FGV_HOST_UP);
    fputs("listening\n", stderr);
    uint32_t index = client_find();
    client = &region.clients[index];
    if (!fgv_client_read_layout(&region, index, &layout)) {
        return 3;
    }
    if (argc > 3 && strcmp(argv[2], "refuse") == 0) {
        atomic_store(&client->refusal, (uint32_t)atoi(argv[3]));
        atomic_store(&client->state, FGV_CLIENT_REFUSED);
        return 0;
    }
    struct fgv_consumer consumer;
    fgv_consumer_init(&consumer, region.base + layout.ring.offset, layout.ring_bytes, layout.commit_key, region.wake);
    atomic_store(&client->state, FGV_CLIENT_READY);
    while (atomic_load(&client->state) == FGV_CLIENT_READY) {
        struct fgv_consumed record;
        enum fgv_consume_status status;
        if (!is_daemon_silent) {
            atomic_fetch_add(&region.header->host_beat, 1);
        }
        if (held != FGV_NO_RESPONSE && now_ns() > held_until_ns) {
            fgv_respond(&region, &layout, held, CUDA_SUCCESS, NULL, 0);
            held = FGV_NO_RESPONSE;
            is_daemon_silent = false;
        }
        while ((status = fgv_consumer_peek(&consumer, &record)) == FGV_CONSUME_RECORD) {
            serve(&record);
            fgv_consumer_release(&consumer);
        }
        if (status == FGV_CONSUME_HOSTILE) {
            return 4;
        }
        if (fgv_consumer_park_prepare(&consumer)) {
            fgv_consumer_park_sleep(&consumer, 10000000);
        } else {
            fgv_consumer_park_cancel(&consumer);
        }
    }
    printf("client state %u\n", atomic_load(&client->state));
    return 0;
}
