/* Calls that are exported and not carried (cuda_api/refused.toml). */
#ifndef FRONTEND_GUEST_REFUSE_H
#define FRONTEND_GUEST_REFUSE_H

#include <stddef.h>

#include "cuda_api/procs.h"

/* One name of cuGetProcAddress; a base name's stand together, oldest first. */
struct fgv_refusal {
    const char *name;
    int since;
    fgv_proc symbol, per_thread; /* per_thread is NULL where there is no twin */
};

/* generated/refusals.c */
extern const struct fgv_refusal fgv_refusals[];
extern const size_t fgv_nr_refusals;

/* What the call `name` returns. It is counted and traced as any call. */
CUresult fgv_refuse(const char *name, CUresult result);

/* As fgv_proc_find(), among these and those that the host's driver has. */
fgv_proc fgv_refusal_find(const char *name, int cuda_version, uint64_t flags, int *status);

#endif
