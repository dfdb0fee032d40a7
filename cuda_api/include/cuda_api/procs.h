/*
 * What cuGetProcAddress answers with. Each libcuda.so.1 of ours compiles its own generated table (generated/procs.c),
 * so that the addresses are its own.
 */
#ifndef CUDA_API_PROCS_H
#define CUDA_API_PROCS_H

#include <stdint.h>

#include "cuda_api/types.h"

typedef void (*fgv_proc)(void);

/*
 * The symbol that a program compiled against cuda_version means by the base name `name` (cuMemAlloc, not
 * cuMemAlloc_v2), or NULL. flags: CUdriverProcAddress_flags; without the per-thread flag the default stream is the
 * legacy one. *status: a CUdriverProcAddressQueryResult.
 */
fgv_proc fgv_proc_find(const char *name, int cuda_version, uint64_t flags, int *status);

#endif
