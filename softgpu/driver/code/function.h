/* A function is a kernel as a context has it. With the lock. */
#ifndef SOFTGPU_FUNCTION_H
#define SOFTGPU_FUNCTION_H

#include "code/module.h"

/* The function behind a handle, which may be that of a library's kernel. */
CUresult sgp_function_resolve(struct CUctx_st *context, CUfunction handle, struct CUfunc_st **function,
                              struct sgp_function_settings **settings);

/* occupancy.c */
int sgp_blocks_per_multiprocessor(const struct sgp_kernel *kernel, uint32_t block_threads,
                                  uint64_t dynamic_shared_bytes);

#endif
