/* What the test programs share: an error ends the program and is named; the verdict is the last line. */
#ifndef TESTS_PROGRAMS_CHECK_H
#define TESTS_PROGRAMS_CHECK_H

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t check_error = (call);                                                                              \
        if (check_error != cudaSuccess) {                                                                              \
            std::printf("line %d: %s gave %s\nFAIL\n", __LINE__, #call, cudaGetErrorName(check_error));                \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

/* Line by line, so that a program that does not come to its end still shows how far it came. */
static const int check_buffering = std::setvbuf(stdout, nullptr, _IOLBF, 0);

static inline int verdict(bool is_right)
{
    std::printf("%s\n", is_right ? "PASS" : "FAIL");
    return is_right ? 0 : 1;
}

#endif
