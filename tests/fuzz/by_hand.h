/*
 * Calls of the stand-in that no prototype tells enough about: what hangs on what, what is told twice alike, what reads
 * and writes memory. The others are generated (generate.py).
 */
#ifndef TESTS_FUZZ_BY_HAND_H
#define TESTS_FUZZ_BY_HAND_H

#include <string.h>

#include "objects.h"

#define STAND_IN(name, ...) CUresult stand_##name(__VA_ARGS__)
#define BEGIN(name)                                                                                                    \
    do {                                                                                                               \
        const CUresult result_ = stand_call(STAND_##name, #name);                                                      \
        if (result_ != CUDA_SUCCESS) {                                                                                 \
            return result_;                                                                                            \
        }                                                                                                              \
    } while (0)

/* The image of a variant begins so; its kernel has one parameter more, for what it is told. */
#define STAND_VARIANT "// variant"

#define STAND_DEVICE_BYTES (UINT64_C(1) << 34)

/* The object of this number below another, made when it is first asked for: as a driver tells one function always. */
void *stand_below(enum fgv_handle_kind kind, const void *parent, uint64_t number);
/* A node of a graph, made with these, which it keeps. */
struct stand_object *stand_node(struct stand_object *graph, const CUgraphNodeParams *params);
/* Reads as the driver would. */
void stand_read(const void *bytes, uint64_t nr);

#endif
