/* Small allocations, in any number and order: that none reaches into another, and that what is freed is done with. */
#include <pthread.h>

#include "case.h"

enum { NR_SLOTS = 200, NR_ROUNDS = 3000, NR_THREADS = 6, NR_EACH = 300 };

struct dice {
    unsigned int state;
};

static unsigned int cast(struct dice *dice)
{
    dice->state = dice->state * 1664525u + 1013904223u;
    return dice->state >> 8;
}

/* From 1 byte to 1.5 MiB, small ones more often. */
static size_t size_of(struct dice *dice)
{
    const size_t most = (size_t)1 << (cast(dice) % 21);
    return 1 + cast(dice) % most + (cast(dice) % 50 == 0 ? (size_t)1 << 19 : 0);
}

/* How many bytes are not `value`. */
static unsigned int nr_wrong(CUdeviceptr memory, size_t bytes, unsigned char value)
{
    unsigned char *host = malloc(bytes);
    unsigned int nr = 0;

    MUST(cuMemcpyDtoH, host, memory, bytes);
    for (size_t i = 0; i < bytes; i++) {
        nr += host[i] != value;
    }
    free(host);
    return nr;
}

struct slot {
    CUdeviceptr memory;
    size_t bytes;
    unsigned char value;
};

CASE(small_memory_in_any_order)
{
    static struct slot slots[NR_SLOTS];
    struct dice dice = {1};
    unsigned int nr = 0, nr_odd = 0;

    memset(slots, 0, sizeof(slots));
    for (unsigned int i = 0; i < NR_ROUNDS; i++) {
        struct slot *slot = &slots[cast(&dice) % NR_SLOTS];

        if (slot->memory) {
            nr += nr_wrong(slot->memory, slot->bytes, slot->value);
            MUST(cuMemFree, slot->memory);
            slot->memory = 0;
        } else {
            *slot = (struct slot){.bytes = size_of(&dice), .value = (unsigned char)i};
            MUST(cuMemAlloc, &slot->memory, slot->bytes);
            MUST(cuMemsetD8, slot->memory, slot->value, slot->bytes);
            nr_odd += slot->memory % 512 != 0;
        }
    }
    for (unsigned int i = 0; i < NR_SLOTS; i++) {
        if (slots[i].memory) {
            nr += nr_wrong(slots[i].memory, slots[i].bytes, slots[i].value);
            MUST(cuMemFree, slots[i].memory);
        }
    }
    say_number("wrong bytes", nr);
    say_number("not aligned to 512 bytes", nr_odd);
}

CASE(small_memory_is_known)
{
    CUdeviceptr one, two, base = 0;
    size_t bytes = 0;
    unsigned long long ids[2] = {0};

    MUST(cuMemAlloc, &one, 1000);
    MUST(cuMemAlloc, &two, 3);
    DO(cuMemGetAddressRange, &base, &bytes, one + 999);
    say_number("from its beginning", base == one);
    say_number("its bytes", (long long)bytes);
    DO(cuMemGetAddressRange, &base, &bytes, two + 2);
    say_number("its bytes", (long long)bytes);
    DO(cuPointerGetAttribute, &ids[0], CU_POINTER_ATTRIBUTE_BUFFER_ID, one);
    DO(cuPointerGetAttribute, &ids[1], CU_POINTER_ATTRIBUTE_BUFFER_ID, two);
    say_number("two buffers", ids[0] != ids[1]);
    DO(cuMemFree, one + 512);
    DO(cuMemFree, one);
    DO(cuMemFree, one);
    DO(cuMemsetD8, two, 1, 3);
    DO(cuMemFree, two);
    DO(cuMemFree, two);
}

/* Freeing waits for what uses the memory: the next one to have it finds nobody else there. */
CASE(small_memory_freed_while_it_is_used)
{
    enum { BYTES = 1 << 19 };
    unsigned int nr = 0;

    for (unsigned int i = 0; i < 20; i++) {
        CUdeviceptr memory;
        CUstream stream;

        MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        MUST(cuMemAlloc, &memory, BYTES);
        for (unsigned int j = 0; j < 30; j++) {
            must("fill", fill(memory, j, BYTES / 4, stream));
        }
        MUST(cuMemFree, memory);
        MUST(cuMemAlloc, &memory, BYTES);
        MUST(cuMemsetD8, memory, 7, BYTES);
        nr += nr_wrong(memory, BYTES, 7);
        MUST(cuStreamSynchronize, stream);
        nr += nr_wrong(memory, BYTES, 7);
        MUST(cuMemFree, memory);
        MUST(cuStreamDestroy, stream);
    }
    say_number("wrong bytes", nr);
}

CASE(small_memory_of_a_context_that_goes)
{
    CUcontext before, other;
    CUdevice device;
    CUdeviceptr memory[50], again;

    MUST(cuCtxGetCurrent, &before);
    MUST(cuCtxGetDevice, &device);
    MUST(cuCtxCreate, &other, NULL, 0, device);
    for (unsigned int i = 0; i < 50; i++) {
        MUST(cuMemAlloc, &memory[i], 1 + i * 1000);
    }
    for (unsigned int i = 0; i < 50; i += 2) {
        MUST(cuMemFree, memory[i]);
    }
    DO(cuCtxDestroy, other);
    DO(cuCtxSetCurrent, before);
    DO(cuMemFree, memory[1]);
    MUST(cuMemAlloc, &again, 1000);
    MUST(cuMemsetD8, again, 5, 1000);
    say_number("wrong bytes", nr_wrong(again, 1000, 5));
    DO(cuMemFree, again);
}

static CUcontext shared;

static void *churn(void *number)
{
    struct dice dice = {(unsigned int)(uintptr_t)number};
    unsigned int nr = 0;

    MUST(cuCtxSetCurrent, shared);
    for (unsigned int i = 0; i < NR_EACH; i++) {
        const size_t bytes = 1 + cast(&dice) % 5000;
        const unsigned char value = (unsigned char)(dice.state ^ i);
        CUdeviceptr one, two;

        MUST(cuMemAlloc, &one, bytes);
        MUST(cuMemsetD8, one, value, bytes);
        MUST(cuMemAlloc, &two, bytes);
        MUST(cuMemsetD8, two, (unsigned char)~value, bytes);
        nr += nr_wrong(one, bytes, value);
        MUST(cuMemFree, one);
        nr += nr_wrong(two, bytes, (unsigned char)~value);
        MUST(cuMemFree, two);
    }
    return (void *)(uintptr_t)nr;
}

CASE(small_memory_by_threads)
{
    pthread_t threads[NR_THREADS];
    long long nr = 0;

    MUST(cuCtxGetCurrent, &shared);
    for (uintptr_t i = 0; i < NR_THREADS; i++) {
        pthread_create(&threads[i], NULL, churn, (void *)(i + 1));
    }
    for (unsigned int i = 0; i < NR_THREADS; i++) {
        void *wrong;

        pthread_join(threads[i], &wrong);
        nr += (long long)(uintptr_t)wrong;
    }
    say_number("wrong bytes", nr);
}

CASE(small_memory_is_free_again)
{
    enum { NR = 400 };
    CUdeviceptr memory[NR];
    size_t before, after, total;

    MUST(cuMemGetInfo, &before, &total);
    for (unsigned int i = 0; i < NR; i++) {
        MUST(cuMemAlloc, &memory[i], 20000);
    }
    for (unsigned int i = 0; i < NR; i++) {
        MUST(cuMemFree, memory[i * 7 % NR]);
    }
    MUST(cuMemGetInfo, &after, &total);
    say_number("as much is free again", after == before);
}
