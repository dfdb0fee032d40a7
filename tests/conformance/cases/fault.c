/* What goes wrong in kernels, and what every call answers afterwards. */
#include "case.h"

/* `function` was found while all was well. */
static void say_aftermath(CUfunction function)
{
    CUdeviceptr memory = 0;
    CUstream stream = NULL;
    CUevent event = NULL;
    CUfunction other = NULL;
    CUcontext context = NULL;
    size_t size = 0;
    int number = 0;

    DO(cuCtxSynchronize);
    DO(cuCtxSynchronize);
    DO(cuStreamSynchronize, NULL);
    DO(cuStreamQuery, NULL);
    DO(cuMemAlloc, &memory, 16);
    DO(cuMemFree, 0);
    DO(cuMemGetInfo, &size, &size);
    DO(cuStreamCreate, &stream, 0);
    DO(cuEventCreate, &event, 0);
    DO(cuModuleGetFunction, &other, module_of_kernels(), "fill");
    DO(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    DO(cuMemsetD8, 4096, 0, 1);
    DO(cuCtxGetCurrent, &context);
    DO(cuDeviceGetCount, &number);
    DO(cuDeviceGetAttribute, &number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0);
    DO(cuDevicePrimaryCtxRelease, 0);
}

ALONE(fault_illegal_address)
{
    CUfunction function = function_of("empty");
    unsigned long long address = 0x10;
    void *parameters[] = {&address};

    say("launch", launch("store_at", 1, 1, NULL, parameters));
    say_aftermath(function);
}

ALONE(fault_trap)
{
    CUfunction function = function_of("empty");
    say("launch", launch("trap_now", 1, 1, NULL, NULL));
    say_aftermath(function);
}

ALONE(fault_misaligned)
{
    CUfunction function = function_of("empty");
    CUdeviceptr words = device_bytes(64, 0);
    void *parameters[] = {&words};

    say("launch", launch("misaligned", 1, 1, NULL, parameters));
    say_aftermath(function);
}

ALONE(fault_assert)
{
    CUfunction function = function_of("empty");
    void *parameters[] = {&(int){0}};

    say("launch", launch("claim", 1, 1, NULL, parameters));
    say_aftermath(function);
}

CASE(fault_assert_that_holds)
{
    void *parameters[] = {&(int){1}};

    say("launch", launch("claim", 1, 32, NULL, parameters));
    DO(cuCtxSynchronize);
}

ALONE(fault_seen_by_a_copy)
{
    CUdeviceptr memory = device_bytes(64, 0);
    char host[64];

    say("launch", launch("trap_now", 1, 1, NULL, NULL));
    DO(cuMemcpyDtoH, host, memory, 64);
    DO(cuMemcpyHtoD, memory, host, 64);
    DO(cuMemFree, memory);
}

ALONE(fault_seen_by_an_event)
{
    CUevent event;

    MUST(cuEventCreate, &event, 0);
    say("launch", launch("trap_now", 1, 1, NULL, NULL));
    CU(cuEventRecord)(event, NULL); /* whether it is too late by now is a race */
    DO(cuEventSynchronize, event);
    DO(cuEventQuery, event);
    DO(cuEventDestroy, event);
}

ALONE(fault_seen_by_another_stream)
{
    CUstream stream, other;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    say("launch", launch("trap_now", 1, 1, stream, NULL));
    DO(cuStreamSynchronize, stream);
    DO(cuStreamSynchronize, other);
    DO(cuStreamQuery, other);
    DO(cuStreamDestroy, other);
    DO(cuStreamDestroy, stream);
}

ALONE(fault_in_one_context_only)
{
    CUresult (*create)(CUcontext *, unsigned int, CUdevice) = symbol_find("cuCtxCreate_v2");
    CUcontext own = NULL, primary = NULL;
    CUmodule module;
    CUfunction function;

    MUST(cuCtxGetCurrent, &primary);
    module_of_kernels();
    must("context", create(&own, 0, 0));
    MUST(cuModuleLoadData, &module, kernels_ptx);
    MUST(cuModuleGetFunction, &function, module, "trap_now");
    DO(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    DO(cuCtxSynchronize);
    DO(cuCtxSetCurrent, primary);
    DO(cuCtxSynchronize);
}

ALONE(fault_then_reset)
{
    CUdeviceptr memory = 0;
    CUcontext context = NULL;

    say("launch", launch("trap_now", 1, 1, NULL, NULL));
    DO(cuCtxSynchronize);
    DO(cuDevicePrimaryCtxReset, 0);
    DO(cuDevicePrimaryCtxRetain, &context, 0);
    DO(cuCtxSetCurrent, context);
    DO(cuMemAlloc, &memory, 4096);
}

ALONE(fault_then_printf)
{
    void *parameters[] = {&(int){5}};

    function_of("say_hello"); /* known now, so that nothing waits between the launches */
    function_of("trap_now");
    say("hello", launch("say_hello", 1, 1, NULL, parameters));
    say("trap", launch("trap_now", 1, 1, NULL, NULL));
    DO(cuCtxSynchronize);
}

/* Calls that ask, or have nothing for the device to do, and had good answers before. */
ALONE(fault_then_questions)
{
    CUdeviceptr memory = device_bytes(64, 0), device = 0;
    CUfunction function = function_of("empty");
    static char registered[8192], host[64];
    CUfunc_cache cache;
    CUcontext context;
    CUdevice ordinal;
    CUstream stream;
    CUevent event;
    CUmemorytype type;
    CUstreamCaptureStatus status;
    void *pinned;
    size_t size;
    unsigned long long id;
    unsigned int flags, version;
    int least, number;

    MUST(cuStreamCreate, &stream, 0);
    MUST(cuEventCreate, &event, 0);
    MUST(cuMemHostAlloc, &pinned, 64, 0);
    MUST(cuMemHostRegister, registered, 4096, 0);
    MUST(cuCtxGetLimit, &size, CU_LIMIT_STACK_SIZE);
    MUST(cuCtxGetCurrent, &context);
    say("launch", launch("trap_now", 1, 1, NULL, NULL));
    DO(cuCtxSynchronize);
    DO(cuCtxGetFlags, &flags);
    DO(cuCtxGetLimit, &size, CU_LIMIT_STACK_SIZE);
    DO(cuCtxGetLimit, &size, CU_LIMIT_MALLOC_HEAP_SIZE);
    DO(cuCtxGetStreamPriorityRange, &least, &number);
    DO(cuCtxGetCacheConfig, &cache);
    DO(cuCtxSetCacheConfig, CU_FUNC_CACHE_PREFER_L1);
    DO(cuCtxGetDevice, &ordinal);
    DO(cuCtxGetId, context, &id);
    DO(cuCtxGetApiVersion, context, &version);
    DO(cuStreamGetPriority, stream, &number);
    DO(cuStreamGetFlags, stream, &flags);
    DO(cuStreamGetCtx, stream, &context);
    DO(cuStreamIsCapturing, stream, &status);
    DO(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    DO(cuStreamBeginCapture, CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED);
    DO(cuStreamSynchronize, CU_STREAM_PER_THREAD);
    DO(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, NULL, NULL);
    DO(cuOccupancyMaxActiveBlocksPerMultiprocessor, &number, function, 32, 0);
    DO(cuMemHostRegister, registered + 4096, 4096, 0);
    DO(cuMemHostGetDevicePointer, &device, pinned, 0);
    DO(cuMemHostGetFlags, &flags, pinned);
    DO(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory);
    DO(cuMemGetAddressRange, &device, &size, memory);
    DO(cuMemcpy, (CUdeviceptr)(uintptr_t)host, memory, 64);
    DO(cuMemcpy, (CUdeviceptr)(uintptr_t)host, (CUdeviceptr)(uintptr_t)registered, 64);
    DO(cuMemcpyHtoDAsync, memory, pinned, 64, CU_STREAM_PER_THREAD);
    DO(cuEventRecord, event, CU_STREAM_PER_THREAD);
    DO(cuMemHostUnregister, registered);
    DO(cuMemFreeHost, pinned);
    DO(cuStreamDestroy, stream);
    DO(cuEventDestroy, event);
    DO(cuMemFree, memory);
}
