/*
 * A case of the conformance suite that uses the CUDA runtime; see case.h, whose kinds of cases and whose way of
 * printing are the same. A case of kind CASE begins with a device that was just reset.
 */
#ifndef CONFORMANCE_RUNTIME_CUH
#define CONFORMANCE_RUNTIME_CUH

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

enum case_kind { KIND_CASE, KIND_ALONE, KIND_BARE };

struct test_case {
    const char *name;
    void (*run)();
    case_kind kind;
    test_case *next;
    test_case(const char *name, void (*run)(), case_kind kind);
};

#define DEFINE_CASE(case_name, kind)                                                                                   \
    static void case_name();                                                                                           \
    static test_case entry_##case_name(#case_name, case_name, kind);                                                   \
    static void case_name()
#define CASE(name)  DEFINE_CASE(name, KIND_CASE)
#define ALONE(name) DEFINE_CASE(name, KIND_ALONE)
#define BARE(name)  DEFINE_CASE(name, KIND_BARE)

/* Prints the call as it is written here and what it gave. */
#define DO(call) say(#call, call)
/* The same, and then the last error, as a program would look at it after a launch. */
#define LAUNCH(...)                                                                                                    \
    do {                                                                                                               \
        __VA_ARGS__;                                                                                                   \
        say(#__VA_ARGS__, cudaGetLastError());                                                                         \
    } while (0)

cudaError_t say(const char *label, cudaError_t result);
void say_number(const char *label, long long value);
void say_bytes(const char *label, const void *memory, size_t bytes);
void say_device_bytes(const char *label, const void *memory, size_t bytes);
unsigned int *device_words(size_t count, unsigned int first); /* first, first + 1, ... */

#endif
