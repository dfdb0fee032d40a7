/*
 * A module that is asked again and again what it has, while the compiler may put faster code in the place of its own.
 * One line for each line on the standard input: "run" launches everything once, "until N" the kernels that say their
 * version until they say N.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver_cases.h"

static const char tiers_ptx[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 arguments);\n"
    ".global .u32 count;\n.global .u64 chosen;\n"
    ".global .align 1 .b8 text[10] = {115, 97, 105, 100, 32, 37, 117, 10, 0, 0};\n" /* said %u */
    ".func (.param .b32 r) twice(.param .b32 a) {\n"
    ".reg .b32 %r<3>; ld.param.b32 %r1, [a]; shl.b32 %r2, %r1, 1; st.param.b32 [r], %r2; ret; }\n"
    ".visible .entry choose() { .reg .b64 %d<2>; mov.u64 %d1, twice; st.global.u64 [chosen], %d1; ret; }\n"
    /* tick(out): how often it ran, twice that by the chosen function, the version of the code */
    ".visible .entry tick(.param .u64 out) {\n"
    ".reg .b32 %r<6>; .reg .b64 %d<6>; .local .align 8 .b8 own[8];\n"
    "ld.param.u64 %d1, [out]; atom.global.add.u32 %r1, [count], 1; add.u32 %r1, %r1, 1; ld.global.u64 %d2, [chosen];\n"
    "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r1;\n"
    "p: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
    "call (r), %d2, (a), p; ld.param.b32 %r2, [r]; }\n"
    "st.global.u32 [%d1], %r1; st.global.u32 [%d1+4], %r2; mov.u32 %r3, 1111; st.global.u32 [%d1+8], %r3;\n"
    "mov.u64 %d3, own; cvta.local.u64 %d3, %d3; st.u32 [%d3], %r1; mov.u64 %d4, text;\n"
    "{ .param .b64 f; .param .b64 v; .param .b32 n; st.param.b64 [f], %d4; st.param.b64 [v], %d3;\n"
    "call (n), vprintf, (f, v); ld.param.b32 %r4, [n]; } ret; }\n"
    /* meet(count): each block waits until all have come, and once more for its own threads */
    ".visible .entry meet(.param .u64 counts) {\n"
    ".reg .u32 %r<5>; .reg .u64 %d<2>; .reg .pred %p<3>; .shared .align 4 .b8 kept[64];\n"
    "ld.param.u64 %d1, [counts]; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra W;\n"
    "st.shared.u32 [kept], %r1; atom.global.add.u32 %r2, [%d1], 1; mov.u32 %r3, %nctaid.x;\n"
    "L: ld.volatile.global.u32 %r4, [%d1]; setp.lt.u32 %p2, %r4, %r3; @%p2 bra L;\n"
    "W: bar.sync 0; ret; }\n";

struct answers {
    unsigned int count, twice, version;
};

static CUfunction tick, meet;
static CUdeviceptr out;

static struct answers ask(void)
{
    struct answers answers;
    void *parameters[] = {&out};

    CHECK(cuLaunchKernel(tick, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH_v2(&answers, out, sizeof(answers)));
    return answers;
}

static unsigned int nr_met(void)
{
    void *parameters[] = {&out};
    unsigned int count = 0;

    CHECK(cuMemcpyHtoD_v2(out, &count, sizeof(count)));
    CHECK(cuLaunchCooperativeKernel(meet, 4, 1, 1, 64, 1, 1, 0, NULL, parameters));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH_v2(&count, out, sizeof(count)));
    return count;
}

static int attribute(CUfunction of, CUfunction_attribute which)
{
    int value;

    CHECK(cuFuncGetAttribute(&value, which, of));
    return value;
}

/* Of the cache's objects, those that are loaded. */
static int nr_loaded(void)
{
    const char *cache = getenv("FAIRGV_SOFTGPU_CACHE");
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int nr = 0;

    while (maps && fgets(line, sizeof(line), maps)) {
        nr += strstr(line, cache) && strstr(line, " r-xp ");
    }
    if (maps) {
        fclose(maps);
    }
    return nr;
}

static bool is_as_before(CUdeviceptr count_before)
{
    CUdeviceptr count;
    CUfunction again;

    CHECK(cuModuleGetFunction(&again, module, "tick"));
    CHECK(cuModuleGetGlobal_v2(&count, NULL, module, "count"));
    return again == tick && count == count_before;
}

static void run(CUdeviceptr count)
{
    struct answers answers = ask();

    printf("version %u, count %u, twice %u, met %u, as before %d, registers %d %d, local %d, shared %d, loaded %d\n",
           answers.version, answers.count, answers.twice, nr_met(), is_as_before(count),
           attribute(tick, CU_FUNC_ATTRIBUTE_NUM_REGS), attribute(meet, CU_FUNC_ATTRIBUTE_NUM_REGS),
           attribute(tick, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES), attribute(meet, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
           nr_loaded());
    fflush(stdout);
}

int case_tiers(const char *argument)
{
    CUdeviceptr count;
    CUfunction choose;
    char line[64];

    (void)argument;
    start();
    CHECK(cuModuleLoadData(&module, tiers_ptx));
    CHECK(cuModuleGetFunction(&choose, module, "choose"));
    CHECK(cuModuleGetFunction(&tick, module, "tick"));
    CHECK(cuModuleGetFunction(&meet, module, "meet"));
    CHECK(cuModuleGetGlobal_v2(&count, NULL, module, "count"));
    CHECK(cuMemAlloc_v2(&out, sizeof(struct answers)));
    CHECK(cuLaunchKernel(choose, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    while (fgets(line, sizeof(line), stdin)) {
        unsigned int version;

        if (sscanf(line, "until %u", &version) == 1) {
            while (ask().version != version)
                ;
            say_text("so");
        } else {
            run(count);
        }
    }
    return 0;
}
