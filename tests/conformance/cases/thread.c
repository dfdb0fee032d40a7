/* Threads of one program: contexts of their own, and work of one that another waits for. */
#include <pthread.h>
#include <stdatomic.h>

#include "case.h"

struct worker {
    pthread_t thread;
    CUcontext context;
    unsigned int number;
    CUdeviceptr memory;
    CUresult result;
    CUstream stream;
};

static void run_all(struct worker *workers, unsigned int count, void *(*body)(void *))
{
    for (unsigned int i = 0; i < count; i++) {
        workers[i].number = i;
        if (pthread_create(&workers[i].thread, NULL, body, &workers[i])) {
            end_case("no thread");
        }
    }
    for (unsigned int i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
    }
}

static CUresult fill_with(CUfunction function, CUdeviceptr memory, unsigned int value, CUstream stream)
{
    void *parameters[] = {&memory, &value, &(unsigned int){1024}};

    return CU(cuLaunchKernel)(function, 8, 1, 1, 128, 1, 1, 0, stream, parameters, NULL);
}

static void *no_context(void *data)
{
    struct worker *worker = data;

    CU(cuCtxGetCurrent)(&worker->context);
    worker->result = CU(cuMemAlloc)(&worker->memory, 16);
    return NULL;
}

CASE(thread_starts_without_context)
{
    struct worker worker = {.context = (CUcontext)1};

    run_all(&worker, 1, no_context);
    say_number("it has one", worker.context != NULL);
    say("alloc there", worker.result);
}

static void *two_contexts(void *data)
{
    CUresult (*create)(CUcontext *, unsigned int, CUdevice) = symbol_find("cuCtxCreate_v2");
    struct worker *worker = data;
    CUfunction function = NULL;
    CUmodule module = NULL;
    CUresult result = create(&worker->context, 0, 0);

    result = result ? result : CU(cuModuleLoadData)(&module, kernels_ptx);
    result = result ? result : CU(cuModuleGetFunction)(&function, module, "fill");
    result = result ? result : CU(cuMemAlloc)(&worker->memory, 4096);
    for (unsigned int i = 0; i < 20 && !result; i++) {
        result = fill_with(function, worker->memory, worker->number * 1000 + i, NULL);
    }
    worker->result = result ? result : CU(cuCtxSynchronize)();
    return NULL;
}

CASE(thread_contexts_of_their_own)
{
    struct worker workers[2] = {{0}, {0}};

    run_all(workers, 2, two_contexts);
    for (unsigned int i = 0; i < 2; i++) {
        say(text("thread %u", i), workers[i].result);
        MUST(cuCtxSetCurrent, workers[i].context);
        say_device_bytes(text("memory of %u", i), workers[i].memory, 4096);
        MUST(cuCtxDestroy, workers[i].context);
    }
}

static void *own_stream(void *data)
{
    struct worker *worker = data;
    CUfunction function = NULL;
    CUresult result = CU(cuCtxSetCurrent)(worker->context);

    result = result ? result : CU(cuModuleGetFunction)(&function, module_of_kernels(), "fill");
    result = result ? result : CU(cuStreamCreate)(&worker->stream, CU_STREAM_NON_BLOCKING);
    for (unsigned int i = 0; i < 30 && !result; i++) {
        result = fill_with(function, worker->memory, worker->number * 1000 + i, worker->stream);
    }
    worker->result = result ? result : CU(cuStreamSynchronize)(worker->stream);
    return NULL;
}

CASE(thread_streams_of_their_own)
{
    struct worker workers[6] = {{0}};
    CUcontext context;

    MUST(cuCtxGetCurrent, &context);
    module_of_kernels();
    for (unsigned int i = 0; i < 6; i++) {
        workers[i].context = context;
        workers[i].memory = device_bytes(4096, 0);
    }
    run_all(workers, 6, own_stream);
    for (unsigned int i = 0; i < 6; i++) {
        say(text("thread %u", i), workers[i].result);
        say_device_bytes(text("memory of %u", i), workers[i].memory, 4096);
    }
}

static atomic_int is_launched;

static void *launch_and_tell(void *data)
{
    struct worker *worker = data;
    CUfunction function = NULL;

    CU(cuCtxSetCurrent)(worker->context);
    CU(cuModuleGetFunction)(&function, module_of_kernels(), "fill");
    worker->result = fill_with(function, worker->memory, 42, NULL);
    atomic_store(&is_launched, 1);
    return NULL;
}

CASE(thread_launch_then_flag_then_synchronise)
{
    struct worker worker = {0};
    int nr_wrong = 0;

    MUST(cuCtxGetCurrent, &worker.context);
    module_of_kernels();
    for (int i = 0; i < 20; i++) {
        unsigned int words[1024];

        worker.memory = device_bytes(4096, 0);
        atomic_store(&is_launched, 0);
        if (pthread_create(&worker.thread, NULL, launch_and_tell, &worker)) {
            end_case("no thread");
        }
        while (!atomic_load(&is_launched))
            ;
        MUST(cuCtxSynchronize);
        MUST(cuMemcpyDtoH, words, worker.memory, sizeof(words));
        nr_wrong += worker.result != CUDA_SUCCESS || words[1023] != 42 + 1023;
        pthread_join(worker.thread, NULL);
        MUST(cuMemFree, worker.memory);
    }
    say_number("wrong", nr_wrong);
}

static atomic_int is_waiting;

static void *wait_long(void *data)
{
    struct worker *worker = data;

    CU(cuCtxSetCurrent)(worker->context);
    atomic_store(&is_waiting, 1);
    worker->result = CU(cuStreamSynchronize)(worker->stream);
    return NULL;
}

/* A thread that waits for a long kernel keeps no other thread from calling. */
CASE(thread_waits_while_another_works)
{
    CUdeviceptr memory = device_bytes(4096, 0);
    struct worker worker = {0};
    struct held held;
    CUstream other;

    MUST(cuCtxGetCurrent, &worker.context);
    MUST(cuStreamCreate, &worker.stream, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    held = hold(worker.stream);
    atomic_store(&is_waiting, 0);
    if (pthread_create(&worker.thread, NULL, wait_long, &worker)) {
        end_case("no thread");
    }
    while (!atomic_load(&is_waiting))
        ;
    say("launch in another stream", fill(memory, 9, 1024, other));
    DO(cuStreamQuery, worker.stream);
    DO(cuEventCreate, &(CUevent){NULL}, 0);
    let_go(held);
    pthread_join(worker.thread, NULL);
    say("the one that waited", worker.result);
    DO(cuStreamSynchronize, other);
    say_device_bytes("filled", memory, 4096);
}

static void *free_here(void *data)
{
    struct worker *worker = data;

    CU(cuCtxSetCurrent)(worker->context);
    worker->result = CU(cuMemFree)(worker->memory);
    return NULL;
}

CASE(thread_frees_what_another_allocated)
{
    struct worker worker = {.memory = device_bytes(4096, 0)};

    MUST(cuCtxGetCurrent, &worker.context);
    run_all(&worker, 1, free_here);
    say("freed there", worker.result);
    DO(cuMemFree, worker.memory);
}

static void *per_thread(void *data)
{
    struct worker *worker = data;
    CUfunction function = NULL;

    CU(cuCtxSetCurrent)(worker->context);
    CU(cuModuleGetFunction)(&function, module_of_kernels(), "fill");
    for (unsigned int i = 0; i < 10; i++) {
        worker->result = fill_with(function, worker->memory, worker->number + i, CU_STREAM_PER_THREAD);
    }
    if (worker->result == CUDA_SUCCESS) {
        worker->result = CU(cuStreamSynchronize)(CU_STREAM_PER_THREAD);
    }
    return NULL;
}

CASE(thread_per_thread_streams)
{
    struct worker workers[4] = {{0}};
    CUcontext context;

    MUST(cuCtxGetCurrent, &context);
    module_of_kernels();
    for (unsigned int i = 0; i < 4; i++) {
        workers[i].context = context;
        workers[i].memory = device_bytes(4096, 0);
    }
    run_all(workers, 4, per_thread);
    for (unsigned int i = 0; i < 4; i++) {
        say(text("thread %u", i), workers[i].result);
        say_device_bytes(text("memory of %u", i), workers[i].memory, 4096);
    }
}

static unsigned long long own_id(void)
{
    unsigned long long id = 0;

    MUST(cuStreamGetId, CU_STREAM_PER_THREAD, &id);
    return id;
}

/* A thread has one such stream for each context, and it is the same one when the context is current again. */
CASE(thread_per_thread_stream_of_each_context)
{
    CUresult (*create)(CUcontext *, unsigned int, CUdevice) = symbol_find("cuCtxCreate_v2");
    CUdeviceptr memory = device_bytes(4096, 1);
    CUcontext first, other;
    unsigned long long of_first, of_other;
    struct held held;

    MUST(cuCtxGetCurrent, &first);
    held = hold(CU_STREAM_PER_THREAD);
    of_first = own_id();
    must("context", create(&other, 0, 0));
    of_other = own_id();
    say_number("the other one's is another", of_other != of_first);
    DO(cuStreamQuery, CU_STREAM_PER_THREAD);
    MUST(cuCtxSetCurrent, first);
    say_number("the first one's again", own_id() == of_first);
    DO(cuStreamQuery, CU_STREAM_PER_THREAD);
    say("fill behind it", fill(memory, 5, 1024, CU_STREAM_PER_THREAD));
    MUST(cuCtxSetCurrent, other);
    say_number("the other one's again", own_id() == of_other);
    MUST(cuCtxSetCurrent, first);
    let_go(held);
    DO(cuStreamSynchronize, CU_STREAM_PER_THREAD);
    say_device_bytes("filled", memory, 4096);
    MUST(cuCtxDestroy, other);
    say_number("the first one's after the other's end", own_id() == of_first);
    must("context", create(&other, 0, 0));
    say_number("a new context has a new one", own_id() != of_other && own_id() != of_first);
    DO(cuStreamSynchronize, CU_STREAM_PER_THREAD);
    MUST(cuCtxDestroy, other);
    MUST(cuDevicePrimaryCtxReset, 0);
    MUST(cuDevicePrimaryCtxRetain, &first, 0);
    MUST(cuCtxSetCurrent, first);
    say_number("a context that was reset has a new one", own_id() != of_first);
    DO(cuStreamSynchronize, CU_STREAM_PER_THREAD);
}

static void *work_in_both(void *data)
{
    struct worker *workers = data;

    for (unsigned int i = 0; i < 2; i++) {
        CU(cuCtxSetCurrent)(workers[i].context);
        for (unsigned int j = 0; j < 10; j++) {
            workers[i].result = CU(cuMemsetD32Async)(workers[i].memory, 100 * i + j, 1024, CU_STREAM_PER_THREAD);
        }
    }
    return NULL;
}

/* What a thread left in its streams of two contexts is done though the thread has ended. */
CASE(thread_ends_with_work_in_two_contexts)
{
    CUresult (*create)(CUcontext *, unsigned int, CUdevice) = symbol_find("cuCtxCreate_v2");
    struct worker workers[2] = {{.memory = device_bytes(4096, 0)}};

    MUST(cuCtxGetCurrent, &workers[0].context);
    must("context", create(&workers[1].context, 0, 0));
    workers[1].memory = device_bytes(4096, 0);
    if (pthread_create(&workers[0].thread, NULL, work_in_both, workers)) {
        end_case("no thread");
    }
    pthread_join(workers[0].thread, NULL);
    for (unsigned int i = 0; i < 2; i++) {
        say(text("work in %u", i), workers[i].result);
        MUST(cuCtxSetCurrent, workers[i].context);
        DO(cuCtxSynchronize);
        say_device_bytes(text("memory of %u", i), workers[i].memory, 4096);
    }
    MUST(cuCtxDestroy, workers[1].context);
}

static void *destroy_there(void *data)
{
    struct worker *worker = data;

    worker->result = CU(cuCtxDestroy)(worker->context);
    return NULL;
}

CASE(thread_destroys_the_context_of_another)
{
    CUresult (*create)(CUcontext *, unsigned int, CUdevice) = symbol_find("cuCtxCreate_v2");
    struct worker worker = {0};
    CUcontext current = NULL;
    CUdevice device = 0;

    must("context", create(&worker.context, 0, 0));
    run_all(&worker, 1, destroy_there);
    say("destroyed there", worker.result);
    DO(cuCtxGetCurrent, &current);
    say_number("still current", current == worker.context);
    DO(cuMemAlloc, &(CUdeviceptr){0}, 16);
    DO(cuCtxSynchronize);
    DO(cuCtxGetDevice, &device);
    DO(cuCtxPopCurrent, &current);
    DO(cuCtxSynchronize);
}
