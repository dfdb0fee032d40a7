/* Whether the worker has the locks that it is to have: see locks.c. */
#ifndef TESTS_FUZZ_LOCKS_H
#define TESTS_FUZZ_LOCKS_H

#include "cuda_api/types.h"

/* Stops the fuzzer where the memory of an extent, which begins there, changes without the span's lock. */
void stand_look_at_lock(CUdeviceptr address);

#endif
