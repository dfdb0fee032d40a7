/*
 * Cases of kernels that run beside each other in a space: see driver_cases.c. The test tells what to launch, line by
 * line, and sees what runs in a page that it shares with the kernels of all processes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver_cases.h"

#define PAGE_BYTES 65536 /* as test_driver_space.py has it, and what lies where */

/*
 * All blocks are of one thread. BEGIN: adds the kernel's weight to what its multiprocessor has now, keeps the most that
 * ever was, and writes into the log who began, where, and whether `word` was set by then. END takes the weight away.
 */
#define PARAMETERS "(.param .u64 page, .param .u32 weight, .param .u32 tag, .param .u32 word)"
#define BEGIN                                                                                                          \
    "{ .reg .u32 %r<20>; .reg .u64 %d<9>; .reg .pred %p<3>;\n"                                                         \
    "ld.param.u64 %d1, [page]; ld.param.u32 %r1, [weight]; ld.param.u32 %r2, [tag]; ld.param.u32 %r3, [word];\n"       \
    "mul.wide.u32 %d2, %r3, 4; add.s64 %d2, %d1, %d2;\n"                                                               \
    "mov.u32 %r4, %smid; mul.wide.u32 %d3, %r4, 4; add.s64 %d3, %d1, %d3;\n"                                           \
    "atom.global.add.u32 %r5, [%d3], %r1; add.u32 %r5, %r5, %r1; red.global.max.u32 [%d3+64], %r5;\n"                  \
    "ld.volatile.global.u32 %r6, [%d2]; min.u32 %r6, %r6, 1; shl.b32 %r6, %r6, 16; shl.b32 %r7, %r4, 8;\n"             \
    "or.b32 %r6, %r6, %r7; or.b32 %r6, %r6, %r2;\n"                                                                    \
    "atom.global.add.u32 %r8, [%d1+128], 1; and.b32 %r8, %r8, 8191; mul.wide.u32 %d4, %r8, 4;\n"                       \
    "add.s64 %d4, %d1, %d4; st.volatile.global.u32 [%d4+1024], %r6;\n"
#define END "neg.s32 %r9, %r1; atom.global.add.u32 %r10, [%d3], %r9; atom.global.add.u32 %r10, [%d1+132], 1; ret; }\n"

static const char kernels[] = HEADER
    /* runs until the word is set */
    ".visible .entry occupy" PARAMETERS BEGIN
    "L: ld.volatile.global.u32 %r11, [%d2]; setp.eq.u32 %p1, %r11, 0; @%p1 bra L;\n" END
    /* ends by itself */
    ".visible .entry brief" PARAMETERS BEGIN "mov.u32 %r11, 2000;\n"
    "L: ld.volatile.global.u32 %r12, [%d2]; sub.u32 %r11, %r11, 1; setp.ne.u32 %p1, %r11, 0; @%p1 bra L;\n" END
    /* counts in the word, and runs until all of its blocks have begun */
    ".visible .entry gather" PARAMETERS BEGIN "atom.global.add.u32 %r11, [%d2], 1; mov.u32 %r12, %nctaid.x;\n"
    "L: ld.volatile.global.u32 %r11, [%d2]; setp.lt.u32 %p1, %r11, %r12; @%p1 bra L;\n" END
    /* relay(words, nr): when words[0] is 1, makes words[1] that, and so on up to nr */
    ".visible .entry relay(.param .u64 words, .param .u32 nr) {\n"
    ".reg .u32 %r<5>; .reg .u64 %d<2>; .reg .pred %p<3>;\n"
    "ld.param.u64 %d1, [words]; ld.param.u32 %r1, [nr]; mov.u32 %r2, 0;\n"
    "N: add.u32 %r2, %r2, 1;\n"
    "L: ld.volatile.global.u32 %r3, [%d1]; setp.lt.u32 %p1, %r3, %r2; @%p1 bra L;\n"
    "st.volatile.global.u32 [%d1+4], %r2; setp.lt.u32 %p2, %r2, %r1; @%p2 bra N; ret; }\n"
    ".visible .entry put(.param .u64 words, .param .u32 value) {\n"
    ".reg .u32 %r<2>; .reg .u64 %d<2>; ld.param.u64 %d1, [words]; ld.param.u32 %r1, [value];\n"
    "st.volatile.global.u32 [%d1], %r1; ret; }\n";

static CUfunction find(const char *name)
{
    static CUmodule loaded;
    CUfunction found;

    if (!loaded) {
        CHECK(cuModuleLoadData(&loaded, kernels));
    }
    CHECK(cuModuleGetFunction(&found, loaded, name));
    return found;
}

static CUstream stream_new(void)
{
    CUstream stream;

    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

struct order {
    char kernel[16];
    unsigned int blocks, shared_bytes, weight, tag, word;
};

static void launch_order(struct order *order, CUdeviceptr page, CUstream stream)
{
    void *parameters[] = {&page, &order->weight, &order->tag, &order->word};
    CUfunction kernel = find(order->kernel);

    if (strcmp(order->kernel, "gather")) {
        CHECK(cuLaunchKernel(kernel, order->blocks, 1, 1, 1, 1, 1, order->shared_bytes, stream, parameters, NULL));
    } else {
        CHECK(cuLaunchCooperativeKernel(kernel, order->blocks, 1, 1, 1, 1, 1, order->shared_bytes, stream, parameters));
    }
}

/* Each launch in a stream of its own. "wait" and "query" are about all of them, "again" makes the last one for ever. */
int case_space(const char *argument)
{
    int fd = open(argument, O_RDWR);
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct order order = {.blocks = 0};
    CUstream stream;
    char line[128];

    start();
    CHECK(cuMemHostRegister_v2(page, PAGE_BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
    find("occupy");
    stream = stream_new();
    say_text("ready");
    while (fgets(line, sizeof(line), stdin)) {
        if (!strcmp(line, "wait\n")) {
            say("wait", cuCtxSynchronize());
        } else if (!strcmp(line, "query\n")) {
            say("query", cuStreamQuery(stream));
        } else if (!strcmp(line, "again\n")) {
            for (;;) {
                launch_order(&order, (uintptr_t)page, stream);
                CHECK(cuStreamSynchronize(stream));
            }
        } else if (sscanf(line, "%15s %u %u %u %u %u", order.kernel, &order.blocks, &order.shared_bytes, &order.weight,
                          &order.tag, &order.word) == 6) {
            stream = stream_new();
            launch_order(&order, (uintptr_t)page, stream);
            say_text("launched");
        }
    }
    return 0;
}

#define NR_WAYS 4

/* Writes 1, 2, ... into a word, each in another way, and waits for the answer that a kernel gives beside. */
static void ask_in_ways(unsigned int nr, CUdeviceptr words, CUstream stream)
{
    for (unsigned int value = 1; value <= nr; value++) {
        void *parameters[] = {&words, &value};

        switch (value) {
        case 1:
            CHECK(cuStreamWriteValue32_v2(stream, words, value, CU_STREAM_WRITE_VALUE_DEFAULT));
            break;
        case 2:
            CHECK(cuMemsetD32Async(words, value, 1, stream));
            break;
        case 3:
            CHECK(cuMemcpyHtoDAsync_v2(words, &value, 4, stream));
            break;
        default:
            CHECK(cuLaunchKernel(find("put"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
        }
        CHECK(cuStreamWaitValue32_v2(stream, words + 4, value, CU_STREAM_WAIT_VALUE_EQ));
        CHECK(cuStreamSynchronize(stream));
        printf("way %u\n", value);
        fflush(stdout);
    }
}

static void relay(CUdeviceptr words, unsigned int nr)
{
    void *parameters[] = {&words, &nr};

    CHECK(cuLaunchKernel(find("relay"), 1, 1, 1, 1, 1, 1, 0, stream_new(), parameters, NULL));
}

/* A kernel that polls memory beside so many ways to write it in another stream of this process. */
int case_relay_here(const char *argument)
{
    const unsigned int nr = (unsigned int)atoi(argument);
    CUstream stream;
    CUdeviceptr words;

    start();
    CHECK(cuMemAlloc_v2(&words, 4096));
    CHECK(cuMemsetD32_v2(words, 0, 2));
    stream = stream_new();
    find("put");
    relay(words, nr);
    ask_in_ways(nr, words, stream);
    CHECK(cuCtxSynchronize());
    return works();
}

/* Physical memory that two processes map: the one says its descriptor and asks, in the other a kernel polls. */
int case_relay_ask(const char *argument)
{
    CUdeviceptr words = share_physical();
    CUstream stream = stream_new();

    (void)argument;
    CHECK(cuMemsetD32_v2(words, 0, 2));
    find("put");
    wait_for_line();
    ask_in_ways(NR_WAYS, words, stream);
    return works();
}

int case_relay_answer(const char *argument)
{
    CUdeviceptr words = take_physical();

    (void)argument;
    relay(words, NR_WAYS);
    say_text("launched");
    CHECK(cuCtxSynchronize());
    return works();
}
