/* Options of the just-in-time compiler: see jit.h. */
#include "code/jit.h"

#include <string.h>

#include "call/chunks.h"
#include "region/client.h"

/* CUDA_SUCCESS when the option can be carried. `jit`: where they go, NULL: they may not be there. */
static CUresult option_take(struct fgv_jit *jit, struct fgv_jit_pairs *taken, CUjit_option option, void **value)
{
    uint64_t number = (uint64_t)(uintptr_t)*value;
    switch (option) {
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER:
        if (jit) {
            jit->logs[option == CU_JIT_ERROR_LOG_BUFFER].buffer = *value;
        }
        return jit ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        if (jit) {
            struct fgv_jit_log *log = &jit->logs[option == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
            log->bytes = (uint32_t)number;
            log->used = value;
        }
        return jit ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_JIT_WALL_TIME:
        if (!jit) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        jit->wall_time = value;
        number = 0;
        break;
    case CU_JIT_THREADS_PER_BLOCK:
        if (jit) {
            jit->threads_per_block = value;
        }
        break;
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_GLOBAL_SYMBOL_COUNT:
    case CU_JIT_REFERENCED_KERNEL_NAMES:
    case CU_JIT_REFERENCED_KERNEL_COUNT:
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
    case CU_JIT_REFERENCED_VARIABLE_COUNT:
        return CUDA_ERROR_NOT_SUPPORTED; /* host addresses, for what CUDA 12 has given up */
    default:
        if ((unsigned)option >= CU_JIT_NUM_OPTIONS) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        break;
    }
    taken->pairs[taken->nr][0] = option;
    taken->pairs[taken->nr++][1] = number;
    return CUDA_SUCCESS;
}

CUresult fgv_jit_take(struct fgv_jit *jit, struct fgv_jit_pairs *taken, unsigned nr_options,
                      const CUjit_option *options, void **values)
{
    CUresult result = nr_options > FGV_JIT_MAX_OPTIONS || (nr_options > 0 && (!options || !values))
                          ? CUDA_ERROR_INVALID_VALUE
                          : CUDA_SUCCESS;
    taken->nr = 0;
    for (unsigned i = 0; i < nr_options && result == CUDA_SUCCESS; i++) {
        result = option_take(jit, taken, options[i], &values[i]);
    }
    return result;
}

static void log_fill(const struct fgv_jit_log *log, const uint8_t *text, uint32_t bytes)
{
    if (log->used) {
        *log->used = (void *)(uintptr_t)(bytes < log->bytes ? bytes : log->bytes);
    }
    if (!log->buffer || log->bytes == 0) {
        return;
    }
    uint32_t kept = bytes < log->bytes ? bytes : log->bytes - 1;
    memcpy(log->buffer, text, kept);
    log->buffer[kept] = '\0';
}

uint32_t fgv_jit_log_bytes(const struct fgv_jit *jit, unsigned log)
{
    return !jit->logs[log].buffer ? 0 : jit->logs[log].bytes;
}

void fgv_jit_clear(const struct fgv_jit *jit)
{
    for (unsigned i = 0; i < FGV_JIT_NR_LOGS; i++) {
        log_fill(&jit->logs[i], (const uint8_t *)"", 0);
    }
}

void fgv_jit_fill(const struct fgv_jit *jit, const struct fgv_jit_said *said, uint32_t chunk)
{
    const uint32_t half = fgv_guest.chunk_bytes / FGV_JIT_NR_LOGS;
    const uint8_t *texts = fgv_chunk_memory(chunk);
    log_fill(&jit->logs[0], texts, said->info_bytes < half ? said->info_bytes : half);
    log_fill(&jit->logs[1], texts + half, said->error_bytes < half ? said->error_bytes : half);
    if (jit->threads_per_block) {
        *jit->threads_per_block = (void *)(uintptr_t)said->threads_per_block;
    }
    if (jit->wall_time) {
        *jit->wall_time = (void *)(uintptr_t)said->wall_time;
    }
}
