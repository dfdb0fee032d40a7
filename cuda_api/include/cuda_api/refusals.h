/* Calls that are exported and not carried (cuda_api/refused.toml). Both libraries compile the generated table into
 * themselves (cuda_api/common/generated). */
#ifndef CUDA_API_REFUSALS_H
#define CUDA_API_REFUSALS_H

#include <stddef.h>

#include "cuda_api/procs.h"

/* One name of cuGetProcAddress; a base name's stand together, oldest first. */
struct fgv_refusal {
    const char *name;
    int since;
    fgv_proc symbol, per_thread; /* per_thread is NULL where there is no twin */
};

extern const struct fgv_refusal fgv_refusals[];
extern const size_t fgv_nr_refusals;

/* As fgv_proc_find(), among these and those that the driver has by its version. */
fgv_proc fgv_refusal_find(const char *name, int cuda_version, uint64_t flags, int *status);

/* What the call `name` returns: result. Each library has its own, which tells of it. */
CUresult fgv_refuse(const char *name, CUresult result);

#endif
