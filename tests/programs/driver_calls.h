/* For programs that call the driver by itself. */
#ifndef TESTS_PROGRAMS_DRIVER_CALLS_H
#define TESTS_PROGRAMS_DRIVER_CALLS_H

#include <cuda.h>

#include "check.h"

static inline const char *name(CUresult result)
{
    const char *text = nullptr;
    cuGetErrorName(result, &text);
    return text != nullptr ? text : "?";
}

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        CUresult ok_result = (call);                                                                                   \
        if (ok_result != CUDA_SUCCESS) {                                                                               \
            std::printf("line %d: %s gave %s\nFAIL\n", __LINE__, #call, name(ok_result));                              \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

#endif
