/* Options of the just-in-time compiler: see jit.h. */
#include "calls/jit.h"

#include <stdio.h>
#include <string.h>

#include "client/arena.h"
#include "client/service.h"
#include "client/state.h"

#define MAX_LOG_BYTES 65536u

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
        return option < FGW_JIT_MAX_OPTIONS;
    }
}

bool fgw_jit_take(const struct fgw_request *request, uint32_t nr, struct fgw_jit_options *options)
{
    if (nr > FGW_JIT_MAX_OPTIONS || nr * 2 * sizeof(uint64_t) > request->payload_bytes) {
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

static void add_option(struct fgw_jit_options *options, CUjit_option option, void *value)
{
    options->options[options->nr] = option;
    options->values[options->nr++] = value;
}

/* What the driver left in an option's value; 0 when nobody asked. */
static uint32_t value_of(const struct fgw_jit_options *options, CUjit_option option)
{
    for (uint32_t i = 0; i < options->nr; i++) {
        if (options->options[i] == option) {
            return (uint32_t)(uintptr_t)options->values[i];
        }
    }
    return 0;
}

static uint32_t bounded_log(uint32_t bytes)
{
    return bytes < MAX_LOG_BYTES ? bytes : MAX_LOG_BYTES;
}

size_t fgw_jit_bytes(const struct fgw_jit_sizes *sizes)
{
    return sizeof(struct fgw_jit) + bounded_log(sizes->log_bytes[0]) + bounded_log(sizes->log_bytes[1]);
}

bool fgw_jit_init(struct fgw_jit *jit, const struct fgw_jit_sizes *sizes, const struct fgw_request *request)
{
    static const CUjit_option buffers[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER};
    static const CUjit_option lengths[] = {CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    char *log = jit->logs;
    if (!fgw_jit_take(request, sizes->nr_options, &jit->options)) {
        return false;
    }
    for (uint32_t i = 0; i < FGV_JIT_NR_LOGS; log += jit->log_bytes[i++]) {
        jit->log_bytes[i] = bounded_log(sizes->log_bytes[i]);
        if (jit->log_bytes[i] > 0) {
            add_option(&jit->options, buffers[i], log);
            add_option(&jit->options, lengths[i], (void *)(uintptr_t)jit->log_bytes[i]);
        }
    }
    return true;
}

struct fgv_jit_said fgw_jit_tell(struct fgw_worker *worker, const struct fgw_jit *jit, CUresult verdict, uint32_t chunk)
{
    uint32_t half = worker->layout.chunk_bytes / FGV_JIT_NR_LOGS;
    uint8_t *memory = fgw_arena_chunk(worker, chunk);
    uint32_t used[FGV_JIT_NR_LOGS] = {0};
    const char *log = jit->logs;
    for (uint32_t i = 0; i < FGV_JIT_NR_LOGS && memory; log += jit->log_bytes[i++]) {
        uint32_t room = jit->log_bytes[i] < half ? jit->log_bytes[i] : half;
        const char *end = memchr(log, '\0', room);
        used[i] = end ? (uint32_t)(end - log) : room;
        memcpy(memory + i * half, log, used[i]);
    }
    return (struct fgv_jit_said){
        .verdict = verdict,
        .info_bytes = used[0],
        .error_bytes = used[1],
        .threads_per_block = value_of(&jit->options, CU_JIT_THREADS_PER_BLOCK),
        .wall_time = value_of(&jit->options, CU_JIT_WALL_TIME),
    };
}

void fgw_jit_note_refusal(struct fgw_jit *jit, const char *name)
{
    char *log = jit->logs + jit->log_bytes[0];
    const char *end = memchr(log, '\0', jit->log_bytes[1]);
    if (end) {
        size_t used = (size_t)(end - log);
        snprintf(log + used, jit->log_bytes[1] - used, "%serror   : '%s' is not what its type says", used ? "\n" : "",
                 name);
    }
}
