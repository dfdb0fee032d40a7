/*
 * A case of the conformance suite: a function that calls the driver and prints what it observes, one "label: value" a
 * line. It judges nothing; the test compares what it prints natively with what it prints through FairGV. So nothing
 * that may differ from run to run is printed: no addresses, no times, no process numbers.
 *
 *   CASE(name)    runs with a context of its own that is current, many cases one after the other in a process
 *   ALONE(name)   the same in a process of its own: it breaks its context, or the process
 *   BARE(name)    in a process of its own in which the driver was never called
 *
 * Calls go through CU(), which looks the symbol up in libcuda.so.1: a device library that lacks one makes the call
 * print "absent", and the case needs no mark for it. One that follows a pointer which is none ends the process; the
 * line then reads "crashes", and the case is run again without the call.
 */
#ifndef CONFORMANCE_CASE_H
#define CONFORMANCE_CASE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ABSENT  ((CUresult) - 1) /* no error of CUDA's */
#define CRASHES ((CUresult) - 2) /* nor this */

enum case_kind { KIND_CASE, KIND_ALONE, KIND_BARE };

struct test_case {
    const char *name;
    void (*run)(void);
    enum case_kind kind;
    struct test_case *next;
};

void case_register(struct test_case *entry);

#define DEFINE_CASE(case_name, case_kind)                                                                              \
    static void case_name(void);                                                                                       \
    __attribute__((constructor)) static void register_##case_name(void)                                                \
    {                                                                                                                  \
        static struct test_case entry = {.name = #case_name, .run = case_name, .kind = case_kind};                     \
        case_register(&entry);                                                                                         \
    }                                                                                                                  \
    static void case_name(void)
#define CASE(name)  DEFINE_CASE(name, KIND_CASE)
#define ALONE(name) DEFINE_CASE(name, KIND_ALONE)
#define BARE(name)  DEFINE_CASE(name, KIND_BARE)

/* A symbol of the device library; a function that answers ABSENT where there is none. */
void *symbol_find(const char *name);
#define SYMBOL_TEXT(name) #name
#define SYMBOL_NAME(name) SYMBOL_TEXT(name) /* after cuda.h made cuMemAlloc cuMemAlloc_v2 */
#define CU(name)          ((__typeof__(&name))symbol_find(SYMBOL_NAME(name)))

/* The call, unless it was seen to crash in an earlier run of the case. */
#define TRY(label, call, ...) (is_tried(label) ? CU(call)(__VA_ARGS__) : CRASHES)
/* Prints the call as it is written here and what it gave. */
#define DO(call, ...) say(#call "(" #__VA_ARGS__ ")", TRY(#call "(" #__VA_ARGS__ ")", call, __VA_ARGS__))
/* Prints only what fails, and then ends the case: for what a case needs before it comes to its subject. */
#define MUST(call, ...) must(#call, CU(call)(__VA_ARGS__))
/* A row of the table of errors: the call, what is wrong with it, what it gave; and what came of it later, if anything.
 */
#define ROW(wrong, call, ...) row(#call " with " wrong, TRY(#call " with " wrong, call, __VA_ARGS__))

bool is_tried(const char *label);
CUresult say(const char *label, CUresult result);
void say_number(const char *label, long long value);
void say_text(const char *label, const char *value);
void say_bytes(const char *label, const void *memory, size_t bytes);        /* a digest */
void say_device_bytes(const char *label, CUdeviceptr memory, size_t bytes); /* of device memory, fetched */
void must(const char *call, CUresult result);
void row(const char *label, CUresult result);
const char *result_name(CUresult result);
const char *text(const char *format, ...) __attribute__((format(printf, 1, 2))); /* good for the next 16 calls */
_Noreturn void end_case(const char *reason);

/* The module of kernels.cu in the current context, and its functions. */
extern const char kernels_ptx[];
CUmodule module_of_kernels(void);
CUfunction function_of(const char *name);
CUresult launch(const char *name, unsigned int grid, unsigned int block, CUstream stream, void **parameters);

/* Device memory for one case, in which byte i is `seed` + i * 7; and n words filled by a kernel. */
CUdeviceptr device_bytes(size_t bytes, uint8_t seed);
CUresult fill(CUdeviceptr words, unsigned int value, unsigned int nr_words, CUstream stream);

/* A kernel that runs until it is let go: pinned flags[0] says that it runs, flags[1] lets it end. */
struct held {
    volatile unsigned int *flags;
};
struct held hold(CUstream stream);
void let_go(struct held held);

#endif
