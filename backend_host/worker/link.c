/*
 * cuLink. The driver keeps pointers to options, their values and the logs for as long as a link lives: they lie in one
 * record that hangs on the handle and is freed with it. No option that is a pointer comes from the guest; the logs are
 * the worker's own, and their text goes back after each call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker.h"

#define MAX_OPTIONS     ((uint32_t)CU_JIT_NUM_OPTIONS)
#define MAX_LOG_BYTES   65536u
#define MAX_NAME_BYTES  4096u
#define MAX_INPUT_BYTES FGV_BLOB_BYTES /* of one link: the driver keeps copies */
#define NR_LOGS         2u
#define NR_OWN_OPTIONS  (2 * NR_LOGS) /* a buffer and its size for each log */

_Static_assert(offsetof(struct fgv_reply_cuLinkAddData_v2, reserved) ==
                   offsetof(struct fgv_reply_cuLinkComplete, reserved),
               "both begin with what the driver said");

struct options {
    uint32_t nr;
    CUjit_option options[MAX_OPTIONS + NR_OWN_OPTIONS];
    void *values[MAX_OPTIONS + NR_OWN_OPTIONS];
};

struct link {
    struct options options;
    uint64_t input_bytes;
    const uint8_t *image; /* the driver's, once complete */
    uint64_t image_bytes;
    uint32_t log_bytes[NR_LOGS]; /* room in `logs`: information, then errors */
    char logs[];
};

static bool is_plain(uint64_t option)
{
    switch (option) {
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_ERROR_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_GLOBAL_SYMBOL_COUNT:
    case CU_JIT_REFERENCED_KERNEL_NAMES:
    case CU_JIT_REFERENCED_KERNEL_COUNT:
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
    case CU_JIT_REFERENCED_VARIABLE_COUNT:
        return false; /* pointers, and what says how far they reach */
    default:
        return option < MAX_OPTIONS;
    }
}

/* The pairs at the start of the payload. */
static bool take_options(const struct fgv_request *request, uint32_t nr, struct options *options)
{
    if (nr > MAX_OPTIONS || nr * 2 * sizeof(uint64_t) > request->payload_bytes) {
        return false;
    }
    for (uint32_t i = 0; i < nr; i++) {
        uint64_t pair[2];
        memcpy(pair, request->payload + i * sizeof(pair), sizeof(pair));
        if (!is_plain(pair[0])) {
            return false;
        }
        options->options[i] = (CUjit_option)pair[0];
        options->values[i] = (void *)(uintptr_t)pair[1];
    }
    options->nr = nr;
    return true;
}

static void add_option(struct options *options, CUjit_option option, void *value)
{
    options->options[options->nr] = option;
    options->values[options->nr++] = value;
}

/* What the driver left in an option's value; 0 when nobody asked. */
static uint32_t value_of(const struct options *options, CUjit_option option)
{
    for (uint32_t i = 0; i < options->nr; i++) {
        if (options->options[i] == option) {
            return (uint32_t)(uintptr_t)options->values[i];
        }
    }
    return 0;
}

static struct link *new_link(const struct fgv_request *request, const struct fgv_request_cuLinkCreate_v2 *fixed)
{
    uint32_t info_bytes = fixed->info_bytes < MAX_LOG_BYTES ? fixed->info_bytes : MAX_LOG_BYTES;
    uint32_t error_bytes = fixed->error_bytes < MAX_LOG_BYTES ? fixed->error_bytes : MAX_LOG_BYTES;
    struct link *link = calloc(1, sizeof(*link) + info_bytes + error_bytes);
    if (!link) {
        return NULL;
    }
    if (!take_options(request, fixed->nr_options, &link->options)) {
        free(link);
        return NULL;
    }
    link->log_bytes[0] = info_bytes;
    link->log_bytes[1] = error_bytes;
    if (info_bytes > 0) {
        add_option(&link->options, CU_JIT_INFO_LOG_BUFFER, link->logs);
        add_option(&link->options, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, (void *)(uintptr_t)info_bytes);
    }
    if (error_bytes > 0) {
        add_option(&link->options, CU_JIT_ERROR_LOG_BUFFER, link->logs + info_bytes);
        add_option(&link->options, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, (void *)(uintptr_t)error_bytes);
    }
    return link;
}

CUresult fgv_serve_cuLinkCreate_v2(struct fgv_worker *worker, const struct fgv_request *request, void *reply)
{
    const struct fgv_request_cuLinkCreate_v2 *fixed = request->fixed;
    (void)reply;
    CUlinkState native = NULL;
    if (!worker->driver.cuLinkCreate_v2) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = fgv_worker_can_bind(worker, FGV_HANDLE_LINK, fixed->link);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (worker->nr_links == FGV_MAX_LINKS) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct link *link = new_link(request, fixed);
    if (!link) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = worker->driver.cuLinkCreate_v2(link->options.nr, link->options.options, link->options.values, &native);
    if (result == CUDA_SUCCESS) {
        result = fgv_worker_bind(worker, FGV_HANDLE_LINK, fixed->link, native);
    }
    if (result != CUDA_SUCCESS) {
        free(link);
        return result;
    }
    fgv_handle_find(worker, FGV_HANDLE_LINK, fixed->link)->object = link;
    worker->nr_links++;
    return CUDA_SUCCESS;
}

/* What the driver said, its logs into the halves of the chunk. */
static void tell(struct fgv_worker *worker, const struct link *link, CUresult result, uint32_t chunk,
                 struct fgv_reply_cuLinkAddData_v2 *answer)
{
    uint32_t half = worker->layout.chunk_bytes / NR_LOGS;
    uint8_t *memory = fgv_arena_chunk(worker, chunk);
    uint32_t used[NR_LOGS] = {0};
    const char *log = link->logs;
    for (uint32_t i = 0; i < NR_LOGS && memory; log += link->log_bytes[i++]) {
        uint32_t room = link->log_bytes[i] < half ? link->log_bytes[i] : half;
        const char *end = memchr(log, '\0', room);
        used[i] = end ? (uint32_t)(end - log) : room;
        memcpy(memory + i * half, log, used[i]);
    }
    *answer = (struct fgv_reply_cuLinkAddData_v2){
        .verdict = result,
        .info_bytes = used[0],
        .error_bytes = used[1],
        .threads_per_block = value_of(&link->options, CU_JIT_THREADS_PER_BLOCK),
        .wall_time = value_of(&link->options, CU_JIT_WALL_TIME),
    };
}

/* An input that the driver may read. Of host objects, archives and NVVM code only the driver knows the form; it is told
 * how long they are. */
static CUresult check_input(const struct link *link, const struct fgv_blob *blob, uint32_t type)
{
    static const enum fgv_image_kind kinds[] = {
        [CU_JIT_INPUT_CUBIN] = FGV_IMAGE_ELF,
        [CU_JIT_INPUT_PTX] = FGV_IMAGE_PTX,
        [CU_JIT_INPUT_FATBINARY] = FGV_IMAGE_FATBIN,
    };
    enum fgv_image_kind kind;
    if (!blob || type >= CU_JIT_NUM_INPUT_TYPES || link->image) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (blob->size_bytes > MAX_INPUT_BYTES - link->input_bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (type > CU_JIT_INPUT_FATBINARY) {
        return CUDA_SUCCESS;
    }
    CUresult result = fgv_blob_measure(blob, &kind);
    return result == CUDA_SUCCESS && kind != kinds[type] ? CUDA_ERROR_INVALID_IMAGE : result;
}

/* What the driver would have said to an input that it must not see. */
static void note_refusal(struct link *link, const char *name)
{
    char *log = link->logs + link->log_bytes[0];
    const char *end = memchr(log, '\0', link->log_bytes[1]);
    if (end) {
        size_t used = (size_t)(end - log);
        snprintf(log + used, link->log_bytes[1] - used, "%serror   : '%s' is not what its type says", used ? "\n" : "",
                 name);
    }
}

/* Adds a blob to a link, once name, options and bytes are found fit. */
static CUresult add_data(struct fgv_worker *worker, const struct fgv_request *request, void *reply)
{
    const struct fgv_request_cuLinkAddData_v2 *fixed = request->fixed;
    const struct fgv_blob *blob = fgv_blob_whole(worker, fixed->blob);
    struct fgv_handle *handle = fgv_handle_find(worker, FGV_HANDLE_LINK, fixed->link);
    struct options options = {0};
    char name[MAX_NAME_BYTES + 1] = {0};
    if (!handle) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!take_options(request, fixed->nr_options, &options) || fixed->name_bytes > MAX_NAME_BYTES ||
        fixed->nr_options * 2 * sizeof(uint64_t) + fixed->name_bytes != request->payload_bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(name, request->payload + request->payload_bytes - fixed->name_bytes, fixed->name_bytes);
    struct link *link = handle->object;
    CUresult result = check_input(link, blob, fixed->type);
    if (result == CUDA_ERROR_INVALID_IMAGE) {
        note_refusal(link, name);
        tell(worker, link, result, fixed->chunk, reply);
        return CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!worker->driver.cuLinkAddData_v2) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    result = worker->driver.cuLinkAddData_v2(handle->native, (CUjitInputType)fixed->type, blob->bytes, blob->size_bytes,
                                             name, options.nr, options.options, options.values);
    link->input_bytes += blob->size_bytes;
    tell(worker, link, result, fixed->chunk, reply);
    return CUDA_SUCCESS;
}

CUresult fgv_serve_cuLinkAddData_v2(struct fgv_worker *worker, const struct fgv_request *request, void *reply)
{
    const struct fgv_request_cuLinkAddData_v2 *fixed = request->fixed;
    CUresult result = add_data(worker, request, reply);
    fgv_blob_drop(worker, fixed->blob);
    return result;
}

CUresult fgv_serve_cuLinkComplete(struct fgv_worker *worker, const struct fgv_request *request, void *reply)
{
    const struct fgv_request_cuLinkComplete *fixed = request->fixed;
    struct fgv_reply_cuLinkComplete *answer = reply;
    struct fgv_reply_cuLinkAddData_v2 said;
    struct fgv_handle *handle = fgv_handle_find(worker, FGV_HANDLE_LINK, fixed->link);
    void *image = NULL;
    size_t image_bytes = 0;
    if (!handle) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct link *link = handle->object;
    if (link->image || !worker->driver.cuLinkComplete) {
        return link->image ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = worker->driver.cuLinkComplete(handle->native, &image, &image_bytes);
    if (result == CUDA_SUCCESS) {
        link->image = image;
        link->image_bytes = image_bytes;
    }
    tell(worker, link, result, fixed->chunk, &said);
    memcpy(answer, &said, offsetof(struct fgv_reply_cuLinkComplete, reserved));
    answer->image_bytes = link->image_bytes;
    return CUDA_SUCCESS;
}

CUresult fgv_serve_link_read(struct fgv_worker *worker, const struct fgv_request *request, void *reply)
{
    const struct fgv_request_link_read *fixed = request->fixed;
    (void)reply;
    struct fgv_handle *handle = fgv_handle_find(worker, FGV_HANDLE_LINK, fixed->link);
    uint8_t *memory = fgv_arena_chunk(worker, fixed->chunk);
    if (!handle) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const struct link *link = handle->object;
    if (!memory || fixed->bytes > worker->layout.chunk_bytes || fixed->offset > link->image_bytes ||
        fixed->bytes > link->image_bytes - fixed->offset) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(memory, link->image + fixed->offset, fixed->bytes);
    return CUDA_SUCCESS;
}
