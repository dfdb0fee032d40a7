/* What host functions may do, and what calls of the host wait for. */
#include <sys/mman.h>
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

struct awaited {
    int flag;
    uint8_t *memory; /* that is set when the flag is, or NULL */
};

static void CUDA_CB wait_and_write(void *argument)
{
    const struct timespec nap = {.tv_nsec = 100000};
    struct awaited *awaited = argument;

    while (!__atomic_load_n(&awaited->flag, __ATOMIC_ACQUIRE)) {
        nanosleep(&nap, NULL);
    }
    for (size_t i = 0; awaited->memory && i < BYTES; i++) {
        awaited->memory[i] = (uint8_t)(i * 5);
    }
}

static void wait_in(CUstream stream, struct awaited *awaited, uint8_t *memory)
{
    *awaited = (struct awaited){.memory = memory};
    MUST(cuLaunchHostFunc, stream, wait_and_write, awaited);
}

static void go_on(CUstream stream, struct awaited *awaited)
{
    DO(cuStreamQuery, stream);
    __atomic_store_n(&awaited->flag, 1, __ATOMIC_RELEASE);
    DO(cuStreamSynchronize, stream);
}

/* The calls return though the program has to go on before the copies are made. */
CASE(copy_of_registered_memory_behind_a_host_function)
{
    uint8_t *host = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr memory = device_bytes(BYTES, 3);
    struct awaited awaited;
    CUstream stream;
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .srcPitch = 2048,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory,
                          .dstPitch = 1024,
                          .WidthInBytes = 1000,
                          .Height = 500};
    CUDA_MEMCPY2D back = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = memory,
                          .srcPitch = 1024,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = host,
                          .dstPitch = 2048,
                          .WidthInBytes = 900,
                          .Height = 400};

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuMemHostRegister, host, BYTES, 0);
    wait_in(stream, &awaited, NULL);
    DO(cuMemcpyDtoHAsync, host, memory, BYTES, stream);
    go_on(stream, &awaited);
    say_bytes("from the device", host, BYTES);
    wait_in(stream, &awaited, host);
    DO(cuMemcpyHtoDAsync, memory + SMALL_BYTES, host, BYTES - SMALL_BYTES, stream);
    DO(cuMemcpyDtoHAsync, host, memory, 2 * SMALL_BYTES, stream);
    go_on(stream, &awaited);
    say_device_bytes("what the function wrote", memory, BYTES);
    say_bytes("and back", host, BYTES);
    wait_in(stream, &awaited, host);
    DO(cuMemcpy2DAsync, &rows, stream);
    go_on(stream, &awaited);
    say_device_bytes("rows", memory, BYTES);
    wait_in(stream, &awaited, NULL);
    DO(cuMemcpy2DAsync, &back, stream);
    go_on(stream, &awaited);
    say_bytes("rows back", host, BYTES);
    DO(cuMemcpyHtoDAsync, memory, host, BYTES, stream);
    DO(cuStreamSynchronize, stream);
    say_device_bytes("with nothing before it", memory, BYTES);
    MUST(cuMemHostUnregister, host);
    munmap(host, BYTES);
}

struct asked {
    CUstream stream;
    CUdeviceptr memory;
    CUresult allocated, freed, created, copied;
};

static void CUDA_CB make_calls(void *argument)
{
    struct asked *asked = argument;
    CUdeviceptr more;
    CUstream other;
    uint8_t byte;

    asked->allocated = CU(cuMemAlloc)(&more, 4 << 20);
    asked->copied = CU(cuMemcpyDtoH)(&byte, asked->memory, 1);
    asked->freed = CU(cuMemFree)(asked->memory);
    asked->created = CU(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING);
}

/* NVIDIA's driver does not look at what a wait for the function's own stream would do: it hangs. */
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
    say("cuStreamCreate there", asked.created);
    DO(cuMemFree, asked.memory);
}

struct asked_of_events {
    CUevent begun, ended;
    CUresult queried, waited, timed;
};

static void CUDA_CB ask_of_events(void *argument)
{
    struct asked_of_events *asked = argument;
    float milliseconds;

    asked->queried = CU(cuEventQuery)(asked->ended);
    asked->waited = CU(cuEventSynchronize)(asked->ended);
    asked->timed = CU(cuEventElapsedTime)(&milliseconds, asked->begun, asked->ended);
}

CASE(host_function_asks_of_events)
{
    struct asked_of_events asked;
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &asked.begun, 0);
    MUST(cuEventCreate, &asked.ended, 0);
    MUST(cuEventRecord, asked.begun, stream);
    MUST(cuEventRecord, asked.ended, stream);
    DO(cuLaunchHostFunc, stream, ask_of_events, &asked);
    DO(cuStreamSynchronize, stream);
    say("cuEventQuery there", asked.queried);
    say("cuEventSynchronize there", asked.waited);
    say("cuEventElapsedTime there", asked.timed);
}
