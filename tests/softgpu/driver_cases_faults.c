/* Cases in which kernels, or the program, do what is an error; and what is left of the process then. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver_cases.h"

int case_fault(const char *argument)
{
    CUfunction empty;
    CUdeviceptr out;

    (void)argument;
    start();
    empty = function("empty");
    CHECK(cuMemAlloc_v2(&out, 4096));
    CHECK(fill(out, 7, 2, 1024)); /* the second block writes past the end */
    say("synchronize", cuCtxSynchronize());
    say("allocate", cuMemAlloc_v2(&out, 4096));
    say("launch", cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CHECK(cuDevicePrimaryCtxReset_v2(0));
    say("retain", cuDevicePrimaryCtxRetain(&context, 0));
    return 0;
}

/* The contexts of a process fail together. */
int case_two_contexts(const char *argument)
{
    CUcontext other, more;
    CUdeviceptr freed;

    (void)argument;
    start();
    CHECK(cuCtxCreate_v2(&other, 0, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc_v2(&freed, 4096));
    CHECK(cuMemFree_v2(freed));
    CHECK(fill(freed, 1, 1, 1));
    say("first", cuCtxSynchronize());
    CHECK(cuCtxSetCurrent(other));
    say("second", cuCtxSynchronize());
    say("third", cuCtxCreate_v2(&more, 0, 0));
    CHECK(cuCtxDestroy_v2(other));
    say("destroyed", cuCtxSetCurrent(other));
    return 0;
}

int case_trap(const char *argument)
{
    (void)argument;
    start();
    CHECK(launch("stop", 3, 33, NULL));
    say("synchronize", cuCtxSynchronize());
    return 0;
}

int case_deadlock(const char *argument)
{
    CUdeviceptr out = 0;
    void *parameters[] = {&out};

    (void)argument;
    start();
    CHECK(launch("divergent", 1, 32, parameters));
    say("synchronize", cuCtxSynchronize());
    return 0;
}

static void *program_fault(void *unused)
{
    *(volatile int *)0x18 = 1;
    return unused;
}

static void on_program_fault(int signal)
{
    (void)signal;
    say_text("the program's own handler");
    _exit(0);
}

/* A fault of the program goes to its own handler, whether that came before our first kernel or after. */
int case_own_fault(const char *argument)
{
    if (!strcmp(argument, "before")) {
        signal(SIGSEGV, on_program_fault);
    }
    start();
    works();
    if (!strcmp(argument, "after")) {
        signal(SIGSEGV, on_program_fault);
    }
    works();
    program_fault(NULL);
    return 1;
}

/* What accesses(out, shift) does with %d1, which is out + shift + 16 * thread; %d2 is out. */
static const struct {
    const char *name;
    const char *body;
} accesses[] = {
    {"load", "ld.global.u32 %r2, [%d1]; st.shared.u32 [s], %r2;"},
    {"store", "st.global.u64 [%d1], %d3;"},
    {"vector", "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1]; st.shared.u32 [s], %r4;"},
    {"atomic", "atom.global.add.u32 %r2, [%d1], 1;"},
    {"strong", "ld.volatile.global.u32 %r2, [%d1];"},
    {"byte", "st.global.u8 [%d1], 0;"},
    {"generic", "ld.u32 %r2, [%d1]; st.shared.u32 [s], %r2;"},
    {"copy", "mov.u32 %r3, s; cp.async.ca.shared.global [%r3], [%d1], 4; cp.async.wait_all;"},
    {"nothing", "mov.u32 %r3, s; mov.u32 %r4, 0; cp.async.ca.shared.global [%r3], [%d1], 4, %r4; cp.async.wait_all;"},
    {"shared", "mov.u32 %r3, s; add.u32 %r3, %r3, %r1; st.shared.f32 [%r3], 0f00000000;"},
    {"local", ".local .align 8 .b8 l[32]; mov.u64 %d3, l; add.u64 %d3, %d3, %d4; st.local.u32 [%d3+4], %r1;"
              " ld.local.u32 %r2, [%d3+8]; st.shared.u32 [s], %r2;"},
    {"together", "bar.sync 0; ld.global.u32 %r2, [%d1]; bar.sync 0; st.shared.u32 [s], %r2;"},
    {"waiting", "ld.global.u32 %r2, [%d1]; vote.sync.any.pred %p1, %p1, -1; st.shared.u32 [s], %r2;"},
    {"parameter", "mov.b64 %d1, out; cvta.param.u64 %d1, %d1; ld.u64 %d3, [%d1]; st.u64 [%d2], %d3;"},
};

/* One of the accesses, by two blocks of 64 threads. */
static CUresult do_access(const char *name, CUdeviceptr out, unsigned int shift)
{
    static const char text[] =
        HEADER ".visible .entry accesses(.param .u64 out, .param .u32 shift) {\n"
               ".reg .u32 %%r<5>; .reg .u64 %%d<5>; .reg .pred %%p<2>;\n"
               ".shared .align 16 .b8 s[32];\n"
               "ld.param.u64 %%d2, [out]; ld.param.u32 %%r1, [shift]; mov.u32 %%r2, %%tid.x;\n"
               "mul.wide.u32 %%d3, %%r2, 16; cvt.u64.u32 %%d4, %%r1; setp.eq.u32 %%p1, %%r2, 0;\n"
               "add.u64 %%d1, %%d2, %%d3; add.u64 %%d1, %%d1, %%d4;\n%s ret; }\n";
    char ptx[2048];
    void *parameters[] = {&out, &shift};
    CUmodule made;
    CUfunction kernel;

    for (size_t i = 0; i < sizeof(accesses) / sizeof(accesses[0]); i++) {
        if (!strcmp(accesses[i].name, name)) {
            snprintf(ptx, sizeof(ptx), text, accesses[i].body);
        }
    }
    CHECK(cuModuleLoadData(&made, ptx));
    CHECK(cuModuleGetFunction(&kernel, made, "accesses"));
    CHECK(cuLaunchKernel(kernel, 2, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
    return cuCtxSynchronize();
}

/* An access that is not aligned to its size. */
int case_misaligned(const char *name)
{
    CUdeviceptr out;

    start();
    CHECK(cuMemAlloc_v2(&out, 4096));
    CHECK(do_access(name, out, 0));
    say(name, do_access(name, out, 2));
    say("later", cuMemAlloc_v2(&out, 4096));
    return 0;
}

/* An access to memory that the program has and did not give the device; "nothing" and "parameter" are none. */
int case_stray(const char *name)
{
    CUdeviceptr out;
    void *own = aligned_alloc(16, 4096);

    start();
    CHECK(cuMemAlloc_v2(&out, 4096));
    CHECK(do_access(name, out, 0));
    say(name, do_access(name, (CUdeviceptr)(uintptr_t)own, 0));
    say("later", cuMemAlloc_v2(&out, 4096));
    return 0;
}

/* Memory of the program is the device's, too, as long as it is registered; pinned memory until it is freed. */
int case_own_memory(const char *argument)
{
    int *own = aligned_alloc(4096, 4096), *pinned;

    (void)argument;
    start();
    own[4] = 7;
    CHECK(cuMemHostRegister_v2(own, 4096, 0));
    CHECK(do_access("atomic", (CUdeviceptr)(uintptr_t)own, 0));
    printf("registered %d\n", own[4]);
    CHECK(cuMemHostUnregister(own));
    CHECK(cuMemAllocHost_v2((void **)&pinned, 4096));
    CHECK(do_access("atomic", (CUdeviceptr)(uintptr_t)pinned, 0));
    printf("pinned %d\n", pinned[4]);
    say("unregistered", do_access("atomic", (CUdeviceptr)(uintptr_t)own, 0));
    return 0;
}
