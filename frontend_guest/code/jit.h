/*
 * Options of the just-in-time compiler, of links and of loads alike. Logs and other answers are the program's memory,
 * so they are kept here and filled from what comes back; all others travel as pairs of numbers.
 */
#ifndef FRONTEND_GUEST_JIT_H
#define FRONTEND_GUEST_JIT_H

#include <stdint.h>

#include "cuda_api/types.h"
#include "cuda_api/values.h"

#define FGV_JIT_MAX_OPTIONS ((unsigned)CU_JIT_NUM_OPTIONS)

struct fgv_jit_log {
    char *buffer;
    uint32_t bytes;
    void **used; /* where the program looks how much of it is filled */
};

/* Where the program wants its answers. */
struct fgv_jit {
    struct fgv_jit_log logs[FGV_JIT_NR_LOGS];
    void **threads_per_block;
    void **wall_time;
};

/* Options as they travel. */
struct fgv_jit_pairs {
    uint32_t nr;
    uint64_t pairs[FGV_JIT_MAX_OPTIONS][2];
};

/* jit: NULL where an option with an answer is CUDA_ERROR_INVALID_VALUE. */
CUresult fgv_jit_take(struct fgv_jit *jit, struct fgv_jit_pairs *taken, unsigned nr_options,
                      const CUjit_option *options, void **values);
/* How much of a log the program has room for. */
uint32_t fgv_jit_log_bytes(const struct fgv_jit *jit, unsigned log);
/* Nothing was said yet. */
void fgv_jit_clear(const struct fgv_jit *jit);
/* The logs lie in the chunk. */
void fgv_jit_fill(const struct fgv_jit *jit, const struct fgv_jit_said *said, uint32_t chunk);

#endif
