/* What host functions may do, and what calls of the host wait for. */
#include <time.h>

#include "case.h"

enum { BYTES = 1 << 20, SMALL_BYTES = 4096 };

static void CUDA_CB sleep_and_set(void *flag)
{
    const struct timespec nap = {.tv_nsec = 50000000};

    nanosleep(&nap, NULL);
    __atomic_store_n((int *)flag, 1, __ATOMIC_RELEASE);
}

/* Whether work that was submitted before had ended when the call returned. */
static void say_waited(const char *what, int *flag)
{
    printf("%s: %s\n", what, __atomic_load_n(flag, __ATOMIC_ACQUIRE) ? "waited" : "did not wait");
    MUST(cuStreamSynchronize, NULL);
    *flag = 0;
}

CASE(copy_waits_for_what_is_before_it)
{
    static int flag;
    CUdeviceptr memory;
    uint8_t *host = calloc(1, BYTES);
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .srcPitch = 2048,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstPitch = 1024,
                          .WidthInBytes = 1000,
                          .Height = 500};

    flag = 0;
    MUST(cuMemAlloc, &memory, BYTES);
    rows.dstDevice = memory;
    MUST(cuLaunchHostFunc, NULL, sleep_and_set, &flag);
    MUST(cuMemcpyHtoD, memory, host, BYTES);
    say_waited("from pageable memory", &flag);
    MUST(cuLaunchHostFunc, NULL, sleep_and_set, &flag);
    MUST(cuMemcpy2D, &rows);
    say_waited("rows from pageable memory", &flag);
    MUST(cuLaunchHostFunc, NULL, sleep_and_set, &flag);
    MUST(cuMemcpyDtoH, host, memory, SMALL_BYTES);
    say_waited("to pageable memory", &flag);
    MUST(cuMemHostRegister, host, BYTES, 0);
    MUST(cuLaunchHostFunc, NULL, sleep_and_set, &flag);
    MUST(cuMemcpyHtoD, memory, host, SMALL_BYTES);
    say_waited("from registered memory", &flag);
    MUST(cuMemHostUnregister, host);
    free(host);
}

struct asked {
    CUstream stream;
    CUdeviceptr memory;
    CUresult allocated, freed, waited, copied;
};

static void CUDA_CB make_calls(void *argument)
{
    struct asked *asked = argument;
    CUdeviceptr more;
    uint8_t byte;

    asked->allocated = CU(cuMemAlloc)(&more, 4 << 20);
    asked->copied = CU(cuMemcpyDtoH)(&byte, asked->memory, 1);
    asked->freed = CU(cuMemFree)(asked->memory);
    asked->waited = CU(cuStreamSynchronize)(asked->stream);
}

CASE(host_function_makes_no_calls)
{
    struct asked asked;

    MUST(cuStreamCreate, &asked.stream, CU_STREAM_NON_BLOCKING);
    MUST(cuMemAlloc, &asked.memory, 4 << 20);
    DO(cuLaunchHostFunc, asked.stream, make_calls, &asked);
    DO(cuStreamSynchronize, asked.stream);
    say("cuMemAlloc there", asked.allocated);
    say("cuMemcpyDtoH there", asked.copied);
    say("cuMemFree there", asked.freed);
    say("cuStreamSynchronize there", asked.waited);
    DO(cuMemFree, asked.memory);
}
