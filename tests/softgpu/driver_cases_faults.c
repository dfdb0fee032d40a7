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
    if (!strcmp(argument, "before"))
        signal(SIGSEGV, on_program_fault);
    start();
    works();
    if (!strcmp(argument, "after"))
        signal(SIGSEGV, on_program_fault);
    works();
    program_fault(NULL);
    return 1;
}

/* Accesses that are not aligned to their size, by the kernel of this name. */
int case_misaligned(const char *name)
{
    CUdeviceptr out;
    unsigned int shift = 0;
    void *parameters[] = {&out, &shift};

    start();
    CHECK(cuMemAlloc_v2(&out, 4096));
    CHECK(launch(name, 2, 64, parameters));
    CHECK(cuCtxSynchronize());
    shift = 2;
    CHECK(launch(name, 2, 64, parameters));
    say(name, cuCtxSynchronize());
    say("later", cuMemAlloc_v2(&out, 4096));
    return 0;
}
