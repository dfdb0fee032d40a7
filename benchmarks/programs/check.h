/* What programs of a single file do when a call of the runtime fails: say which, and exit with 2. */
#ifndef BENCHMARKS_CHECK_H
#define BENCHMARKS_CHECK_H

#include <cuda_runtime.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t error_ = (call);                                                                                   \
        if (error_ != cudaSuccess) {                                                                                   \
            fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, #call, cudaGetErrorName(error_));           \
            exit(2);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
