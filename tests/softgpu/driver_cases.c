/*
 * Cases for softgpu's driver, each a process of its own: driver_cases CASE [ARGUMENT]. Plain driver API and PTX written
 * here, so that no nvcc is needed. Prints what a test looks for, a line each; waits for a line on its standard input
 * where a test has something to do meanwhile.
 */
#include "driver_cases.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char kernels[] = HEADER
    /* fill(out, value): out[global index] = value */
    ".visible .entry fill(.param .u64 out, .param .u32 value) {\n"
    ".reg .u32 %r<6>; .reg .u64 %d<4>;\n"
    "ld.param.u64 %d1, [out]; ld.param.u32 %r1, [value]; cvta.to.global.u64 %d1, %d1;\n"
    "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;\n"
    "mul.wide.u32 %d2, %r5, 4; add.s64 %d3, %d1, %d2; st.global.u32 [%d3], %r1; ret; }\n"
    /* hold(flags): flags[0] = 1, then wait for flags[1] */
    ".visible .entry hold(.param .u64 flags) {\n"
    ".reg .u32 %r<3>; .reg .u64 %d<2>; .reg .pred %p<2>;\n"
    "ld.param.u64 %d1, [flags]; mov.u32 %r1, 1; st.volatile.global.u32 [%d1], %r1;\n"
    "L: ld.volatile.global.u32 %r2, [%d1+4]; setp.eq.u32 %p1, %r2, 0; @%p1 bra L; ret; }\n"
    /* alone(counts): counts[0] is how many kernels run now, counts[1] how often that was more than one */
    ".visible .entry alone(.param .u64 counts) {\n"
    ".reg .u32 %r<5>; .reg .u64 %d<2>; .reg .pred %p<3>;\n"
    "ld.param.u64 %d1, [counts]; atom.global.add.u32 %r1, [%d1], 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra A;\n"
    "atom.global.add.u32 %r2, [%d1+4], 1;\n"
    "A: mov.u32 %r3, 20000;\n"
    "B: ld.volatile.global.u32 %r4, [%d1]; sub.u32 %r3, %r3, 1; setp.ne.u32 %p2, %r3, 0; @%p2 bra B;\n"
    "atom.global.add.u32 %r2, [%d1], -1; ret; }\n"
    /* early(out, n): threads from n on leave; the others turn an array round through shared memory */
    ".visible .entry early(.param .u64 out, .param .u32 n) {\n"
    ".reg .u32 %r<9>; .reg .u64 %d<5>; .reg .pred %p<2>; .shared .align 4 .b8 s[4096];\n"
    "ld.param.u64 %d1, [out]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; setp.ge.u32 %p1, %r2, %r1; @%p1 bra E;\n"
    "mov.u32 %r3, s; shl.b32 %r4, %r2, 2; add.u32 %r5, %r3, %r4; st.shared.u32 [%r5], %r2; bar.sync 0;\n"
    "sub.u32 %r6, %r1, 1; sub.u32 %r6, %r6, %r2; shl.b32 %r6, %r6, 2; add.u32 %r7, %r3, %r6; ld.shared.u32 %r8, [%r7]; "
    "bar.sync 0;\n"
    "mul.wide.u32 %d2, %r2, 4; add.s64 %d3, %d1, %d2; st.global.u32 [%d3], %r8;\n"
    "E: ret; }\n"
    /* meet(out): half of each warp meets under one mask, half under another */
    ".visible .entry meet(.param .u64 out) {\n"
    ".reg .u32 %r<9>; .reg .u64 %d<4>; .reg .pred %p<4>;\n"
    "ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; @%p1 bra O;\n"
    "setp.lt.u32 %p2, %r1, 16; vote.sync.ballot.b32 %r3, %p2, 0x55555555; bra W;\n"
    "O: setp.lt.u32 %p3, %r1, 8; vote.sync.ballot.b32 %r3, %p3, 0xaaaaaaaa;\n"
    "W: mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d1, %d2; st.global.u32 [%d3], %r3; ret; }\n"
    /* together(counts): block by block, wait until all blocks have come */
    ".visible .entry together(.param .u64 counts) {\n"
    ".reg .u32 %r<5>; .reg .u64 %d<2>; .reg .pred %p<3>;\n"
    "ld.param.u64 %d1, [counts]; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra W;\n"
    "atom.global.add.u32 %r2, [%d1], 1; mov.u32 %r3, %nctaid.x;\n"
    "L: ld.volatile.global.u32 %r4, [%d1]; setp.ne.u32 %p2, %r4, %r3; @%p2 bra L;\n"
    "W: bar.sync 0; ret; }\n"
    ".visible .entry empty() { ret; }\n"
    ".visible .entry stop() { trap; }\n"
    ".visible .entry divergent(.param .u64 out) {\n"
    ".reg .u32 %r<3>; .reg .pred %p<2>; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @%p1 bra A;\n"
    "bar.sync 1, 64; ret;\n"
    "A: bar.sync 2, 64; ret; }\n";

CUcontext context;
CUmodule module;

void check(CUresult result, const char *call, int line)
{
    const char *name = "?";

    if (result == CUDA_SUCCESS) {
        return;
    }
    cuGetErrorName(result, &name);
    printf("line %d: %s gave %s\n", line, call, name);
    exit(1);
}

void say(const char *what, CUresult result)
{
    const char *name = "?";

    cuGetErrorName(result, &name);
    printf("%s %s\n", what, name);
    fflush(stdout);
}

void say_text(const char *text)
{
    puts(text);
    fflush(stdout);
}

void wait_for_line(void)
{
    char line[64];

    if (!fgets(line, sizeof(line), stdin)) {
        exit(2);
    }
}

void start(void)
{
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
}

CUfunction function(const char *name)
{
    CUfunction found;

    if (!module) {
        CHECK(cuModuleLoadData(&module, kernels));
    }
    CHECK(cuModuleGetFunction(&found, module, name));
    return found;
}

CUresult launch(const char *name, unsigned int grid, unsigned int block, void **parameters)
{
    return cuLaunchKernel(function(name), grid, 1, 1, block, 1, 1, 0, NULL, parameters, NULL);
}

CUresult fill(CUdeviceptr out, unsigned int value, unsigned int grid, unsigned int block)
{
    void *parameters[] = {&out, &value};

    return launch("fill", grid, block, parameters);
}

volatile unsigned int *hold(CUstream stream)
{
    volatile unsigned int *flags;
    void *parameters[] = {&flags};

    CHECK(cuMemHostAlloc((void **)&flags, 64, 0));
    flags[0] = flags[1] = 0;
    CHECK(cuLaunchKernel(function("hold"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
    return flags;
}

/* Fills an array and looks at it; the exit code of most cases. */
int works(void)
{
    unsigned int *host = calloc(10000, sizeof(*host));
    CUdeviceptr out;

    CHECK(cuMemAlloc_v2(&out, 10000 * sizeof(*host)));
    CHECK(fill(out, 7, 100, 100));
    CHECK(cuMemcpyDtoH_v2(host, out, 10000 * sizeof(*host)));
    CHECK(cuMemFree_v2(out));
    for (int i = 0; i < 10000; i++) {
        if (host[i] != 7) {
            return 1;
        }
    }
    free(host);
    say_text("PASS");
    return 0;
}

static int case_works(const char *argument)
{
    (void)argument;
    start();
    return works();
}

/* Allocates this many MiB, waits for a line, ends. */
static int case_allocate(const char *argument)
{
    CUdeviceptr out;
    CUresult result;
    size_t free_bytes, total_bytes;

    start();
    result = cuMemAlloc_v2(&out, (size_t)atoi(argument) << 20);
    say("allocate", result);
    CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    printf("free %zu of %zu MiB\n", free_bytes >> 20, total_bytes >> 20);
    fflush(stdout);
    wait_for_line();
    return result != CUDA_SUCCESS;
}

/* A kernel that never ends. Says so once it runs. */
static int case_hold(const char *argument)
{
    volatile unsigned int *flags;

    start();
    flags = hold(NULL);
    while (!flags[0]) {
        usleep(100);
    }
    say_text("running");
    if (!strcmp(argument, "exit")) {
        exit(0); /* with work in flight */
    }
    wait_for_line();
    flags[1] = 1;
    CHECK(cuCtxSynchronize());
    say_text("PASS");
    return 0;
}

/* One kernel, which has to wait for another process's. */
static int case_queue(const char *argument)
{
    CUdeviceptr out;

    (void)argument;
    start();
    CHECK(cuMemAlloc_v2(&out, 4));
    function("fill");
    say_text("loaded");
    wait_for_line();
    CHECK(fill(out, 1, 1, 1));
    say("query", cuStreamQuery(NULL));
    CHECK(cuCtxSynchronize());
    say_text("PASS");
    return 0;
}

/* 200 kernels that count, in memory shared with other processes, how many of them run at once. */
static int case_alone(const char *argument)
{
    int fd = open(argument, O_RDWR);
    void *counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *parameters[] = {&counts};

    start();
    CHECK(cuMemHostRegister_v2(counts, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    for (int i = 0; i < 200; i++) {
        CHECK(launch("alone", 1, 1, parameters));
    }
    CHECK(cuCtxSynchronize());
    CHECK(cuMemHostUnregister(counts));
    say_text("PASS");
    return 0;
}

static int case_fibers(const char *argument)
{
    unsigned int nr = 100, host[256];
    CUdeviceptr out;
    void *parameters[] = {&out, &nr};

    (void)argument;
    start();
    CHECK(cuMemAlloc_v2(&out, sizeof(host)));
    for (nr = 1; nr <= 256; nr += 51) {
        CHECK(cuMemsetD32_v2(out, 1000, 256));
        CHECK(launch("early", 5, 256, parameters));
        CHECK(cuMemcpyDtoH_v2(host, out, sizeof(host)));
        for (unsigned int i = 0; i < 256; i++) {
            if (host[i] != (i < nr ? nr - 1 - i : 1000)) {
                return 1;
            }
        }
    }
    CHECK(launch("meet", 3, 32, parameters));
    CHECK(cuMemcpyDtoH_v2(host, out, 128));
    for (unsigned int i = 0; i < 32; i++) {
        if (host[i] != (i % 2 ? 0xaau : 0x5555u)) {
            return 1;
        }
    }
    say_text("PASS");
    return 0;
}

static int case_wrong_calls(const char *argument)
{
    CUdeviceptr out;
    char buffer[64] = "";
    CUstream stream;
    CUevent event;
    float elapsed;

    (void)argument;
    say("before", cuCtxGetCurrent(&context));
    start();
    CHECK(cuMemAlloc_v2(&out, 4096));
    say("free", cuMemFree_v2(out + 16));
    say("freehost", cuMemFreeHost(buffer));
    say("past", cuMemcpyHtoD_v2(out + 4090, buffer, 16));
    say("nowhere", cuMemcpyDtoH_v2(buffer, 0x7d1234567890, 16));
    say("hostasdevice", cuMemsetD8_v2((CUdeviceptr)(uintptr_t)buffer, 0, 16));
    say("unaligned", cuMemsetD32_v2(out + 2, 0, 4));
    say("nofunction", cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    say("nogrid", launch("empty", 0, 1, NULL));
    say("bigblock", launch("empty", 1, 1025, NULL));
    say("shared", cuLaunchKernel(function("empty"), 1, 1, 1, 1, 1, 1, 50000, NULL, NULL, NULL));
    say("noparameters", launch("fill", 1, 1, NULL));
    say("stream", cuStreamSynchronize((CUstream)buffer));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamDestroy_v2(stream));
    say("destroyed", cuStreamQuery(stream));
    CHECK(cuEventCreate(&event, 0));
    say("unrecorded", cuEventElapsedTime_v2(&elapsed, event, event));
    say("attribute", cuDeviceGetAttribute((int *)buffer, CU_DEVICE_ATTRIBUTE_MAX, 0));
    say("toobig", cuMemAlloc_v2(&out, (size_t)1 << 50));
    return works();
}

static int case_fork(const char *argument)
{
    int status = 1;
    pid_t child;

    (void)argument;
    start();
    works();
    fflush(stdout);
    child = fork();
    if (!child) {
        CUdeviceptr out;

        say("child", cuMemAlloc_v2(&out, 4096));
        say("child init", cuInit(0));
        _exit(0);
    }
    waitpid(child, &status, 0);
    return status ? 1 : works();
}

static void *streams_main(void *unused)
{
    CUdeviceptr out;
    CUstream stream;
    unsigned int value, got;

    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc_v2(&out, 4));
    for (value = 1; value < 300; value++) {
        void *parameters[] = {&out, &value};

        CHECK(cuMemsetD32Async(out, 0, 1, stream));
        CHECK(cuLaunchKernel(function("fill"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
        CHECK(cuMemcpyDtoHAsync_v2(&got, out, 4, stream));
        if (got != value) {
            exit(3);
        }
    }
    CHECK(cuStreamDestroy_v2(stream));
    return unused;
}

static int case_threads(const char *argument)
{
    pthread_t threads[4];

    (void)argument;
    start();
    function("fill");
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, streams_main, NULL);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    return works();
}

/* The legacy stream waits for blocking streams and they for it; a non-blocking one does neither. */
/* More blocks than cores, each of which waits for all others: only a cooperative launch promises that. */
static int case_cooperative(const char *argument)
{
    CUdeviceptr counts;
    unsigned int arrived;
    void *parameters[] = {&counts};

    (void)argument;
    start();
    CHECK(cuMemAlloc_v2(&counts, 4));
    for (unsigned int nr_blocks = 1; nr_blocks <= 16; nr_blocks *= 4) {
        CHECK(cuMemsetD32_v2(counts, 0, 1));
        CHECK(cuLaunchCooperativeKernel(function("together"), nr_blocks, 1, 1, 64, 1, 1, 0, NULL, parameters));
        CHECK(cuMemcpyDtoH_v2(&arrived, counts, 4));
        if (arrived != nr_blocks) {
            return 1;
        }
    }
    say("large", cuLaunchCooperativeKernel(function("together"), 513, 1, 1, 64, 1, 1, 0, NULL, parameters));
    return works();
}

struct test_case {
    const char *name;
    int (*run)(const char *argument);
};

static const struct test_case cases[] = {
    {"works", case_works},
    {"allocate", case_allocate},
    {"hold", case_hold},
    {"queue", case_queue},
    {"alone", case_alone},
    {"fault", case_fault},
    {"two_contexts", case_two_contexts},
    {"trap", case_trap},
    {"deadlock", case_deadlock},
    {"fibers", case_fibers},
    {"wrong_calls", case_wrong_calls},
    {"fork", case_fork},
    {"own_fault", case_own_fault},
    {"threads", case_threads},
    {"order", case_order},
    {"own_streams", case_own_streams},
    {"row", case_row},
    {"cooperative", case_cooperative},
    {"two_devices", case_two_devices},
    {"checkpoint_states", case_checkpoint_states},
    {"checkpoint_pairs", case_checkpoint_pairs},
    {"checkpoint_memory", case_checkpoint_memory},
    {"checkpoint_timeout", case_checkpoint_timeout},
    {"checkpoint_blocks", case_checkpoint_blocks},
    {"checkpoint_refused", case_checkpoint_refused},
    {"ask", case_ask},
    {"asked", case_asked},
    {"move", case_move},
    {"fails", case_fails},
    {"fails_within", case_fails_within},
    {"misaligned", case_misaligned},
    {"stray", case_stray},
    {"own_memory", case_own_memory},
    {"tiers", case_tiers},
    {"addresses", case_addresses},
    {"pieces", case_pieces},
    {"physical", case_physical},
    {"remap", case_remap},
    {"registered_in_a_reservation", case_registered_in_a_reservation},
    {"reserve", case_reserve},
    {"kinds", case_kinds},
    {"share", case_share},
    {"take", case_take},
    {"forged", case_forged},
    {"forged_pool", case_forged_pool},
    {"lies", case_lies},
    {"record", case_record},
    {"await", case_await},
    {"space", case_space},
    {"relay_here", case_relay_here},
    {"relay_ask", case_relay_ask},
    {"relay_answer", case_relay_answer},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (!strcmp(argv[1], cases[i].name)) {
            return cases[i].run(argc > 2 ? argv[2] : "");
        }
    }
    return 2;
}
