/*
 * Options of the driver's just-in-time compiler, of links and of loads alike. No option that is a pointer comes from
 * the guest; the logs are the worker's own, of bounded size, and their text goes back in a chunk.
 */
#ifndef BACKEND_HOST_JIT_H
#define BACKEND_HOST_JIT_H

#include "client/service.h"

#define FGV_JIT_MAX_OPTIONS ((uint32_t)CU_JIT_NUM_OPTIONS)
#define FGV_JIT_OWN_OPTIONS (2 * FGV_JIT_NR_LOGS) /* a buffer and its size for each log */

struct fgv_jit_options {
    uint32_t nr;
    CUjit_option options[FGV_JIT_MAX_OPTIONS + FGV_JIT_OWN_OPTIONS];
    void *values[FGV_JIT_MAX_OPTIONS + FGV_JIT_OWN_OPTIONS];
};

/* What the guest asks for; not checked. */
struct fgv_jit_sizes {
    uint32_t nr_options;
    uint32_t log_bytes[FGV_JIT_NR_LOGS];
};

/* Stays where it is for as long as the driver may write its logs. */
struct fgv_jit {
    struct fgv_jit_options options;
    uint32_t log_bytes[FGV_JIT_NR_LOGS]; /* room in `logs` */
    char logs[];
};

/* Takes the pairs at the start of the payload. False: too many, or one that is not the guest's to set. */
bool fgv_jit_take(const struct fgv_request *request, uint32_t nr, struct fgv_jit_options *options);
/* How large a fgv_jit has to be, and fills zeroed memory of that size. False: as above. */
size_t fgv_jit_bytes(const struct fgv_jit_sizes *sizes);
bool fgv_jit_init(struct fgv_jit *jit, const struct fgv_jit_sizes *sizes, const struct fgv_request *request);
/* What the driver said beside this verdict, its logs into the parts of the chunk. */
struct fgv_jit_said fgv_jit_tell(struct fgv_worker *worker, const struct fgv_jit *jit, CUresult verdict,
                                 uint32_t chunk);
/* What the driver would have said to an input that it must not see. */
void fgv_jit_note_refusal(struct fgv_jit *jit, const char *name);

#endif
