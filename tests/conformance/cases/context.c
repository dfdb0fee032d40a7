/* Contexts: primary ones, created ones, the stack, limits, preferences. */
#include "case.h"

/* cuda.h of CUDA 13 declares the newest form alone. */
CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int nr_params, unsigned int flags,
                        CUdevice device);
#undef cuCtxCreate

static void say_current(const char *label, CUcontext expected)
{
    CUcontext current = NULL;

    CU(cuCtxGetCurrent)(&current);
    say_text(label, !current ? "none" : current == expected ? "the one expected" : "another");
}

ALONE(context_primary_counts)
{
    unsigned int flags = 99;
    CUcontext context = NULL, again = NULL;
    int is_active = -1;

    DO(cuDevicePrimaryCtxGetState, 0, &flags, &is_active);
    printf("state: %u %d\n", flags, is_active);
    DO(cuDevicePrimaryCtxRetain, &context, 0);
    DO(cuDevicePrimaryCtxRetain, &again, 0);
    say_number("the same", context == again);
    DO(cuDevicePrimaryCtxRelease, 0);
    DO(cuDevicePrimaryCtxRelease, 0);
    DO(cuDevicePrimaryCtxGetState, 0, &flags, &is_active);
    say_number("active", is_active);
    DO(cuDevicePrimaryCtxRelease, 0);
    DO(cuDevicePrimaryCtxGetState, 0, &flags, &is_active);
    say_number("active", is_active);
    DO(cuDevicePrimaryCtxRelease, 0);
    DO(cuCtxSynchronize);
    DO(cuMemAlloc, &(CUdeviceptr){0}, 16);
    say_current("current after the last release", context);
    DO(cuDevicePrimaryCtxRetain, &again, 0);
    say_number("the same again", context == again);
    DO(cuMemAlloc, &(CUdeviceptr){0}, 16);
}

ALONE(context_primary_flags)
{
    unsigned int flags = 99;
    int is_active = -1;

    for (unsigned int wanted = 0; wanted < 34; wanted++) {
        say(text("set flags %u", wanted), CU(cuDevicePrimaryCtxSetFlags)(0, wanted));
    }
    DO(cuDevicePrimaryCtxSetFlags, 0, CU_CTX_SCHED_BLOCKING_SYNC);
    DO(cuDevicePrimaryCtxGetState, 0, &flags, &is_active);
    say_number("flags", flags);
    DO(cuCtxGetFlags, &flags);
    say_number("flags of the current context", flags);
    DO(cuCtxSynchronize);
}

ALONE(context_primary_reset)
{
    CUdeviceptr memory = device_bytes(4096, 1);
    CUstream stream = NULL;
    int is_active = -1;
    unsigned int flags = 99;

    MUST(cuStreamCreate, &stream, 0);
    DO(cuDevicePrimaryCtxReset, 0);
    DO(cuDevicePrimaryCtxGetState, 0, &flags, &is_active);
    say_number("active", is_active);
    DO(cuMemFree, memory);
    DO(cuStreamSynchronize, stream);
    DO(cuMemAlloc, &memory, 16);
}

CASE(context_create_and_destroy)
{
    CUcontext own = NULL, before = NULL;
    CUdevice device = -1;

    MUST(cuCtxGetCurrent, &before);
    DO(cuCtxCreate_v2, &own, 0, 0);
    say_current("current", own);
    DO(cuCtxGetDevice, &device);
    say_number("device", device);
    DO(cuMemAlloc, &(CUdeviceptr){0}, 4096);
    DO(cuCtxDestroy, own);
    say_current("current", before);
}

CASE(context_create_flags)
{
    static const unsigned int flags[] = {0, 1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 64, 128, 256, 0x80000000};

    for (unsigned int i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        CUcontext own = NULL;
        unsigned int got = 99;

        if (say(text("create with %u", flags[i]), CU(cuCtxCreate_v2)(&own, flags[i], 0)) != CUDA_SUCCESS) {
            continue;
        }
        say(text("flags of %u", flags[i]), CU(cuCtxGetFlags)(&got));
        say_number(text("flags of %u are", flags[i]), got);
        MUST(cuCtxDestroy, own);
    }
}

CASE(context_create_newer_forms)
{
    CUexecAffinityParam affinity = {.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT};
    CUctxCreateParams params = {0};
    CUcontext own = NULL;

    affinity.param.smCount.val = 1;
    DO(cuCtxCreate_v3, &own, NULL, 0, 0, 0);
    DO(cuCtxDestroy, own);
    DO(cuCtxCreate_v3, &own, &affinity, 1, 0, 0);
    DO(cuCtxCreate_v4, &own, NULL, 0, 0);
    DO(cuCtxDestroy, own);
    DO(cuCtxCreate_v4, &own, &params, 0, 0);
    DO(cuCtxDestroy, own);
}

CASE(context_stack)
{
    CUcontext first = NULL, second = NULL, popped = NULL, primary = NULL;

    MUST(cuCtxGetCurrent, &primary);
    MUST(cuCtxCreate_v2, &first, 0, 0);
    MUST(cuCtxCreate_v2, &second, 0, 0);
    DO(cuCtxPopCurrent, &popped);
    say_number("second", popped == second);
    say_current("current", first);
    DO(cuCtxPushCurrent, second);
    DO(cuCtxPushCurrent, second);
    DO(cuCtxPushCurrent, first);
    say_current("current", first);
    DO(cuCtxPopCurrent, NULL);
    DO(cuCtxPopCurrent, &popped);
    DO(cuCtxPopCurrent, &popped);
    say_current("current", first);
    DO(cuCtxPopCurrent, &popped);
    say_current("current", primary);
    DO(cuCtxPopCurrent, &popped);
    say_current("current", primary);
    DO(cuCtxPopCurrent, &popped);
    MUST(cuCtxDestroy, first);
    MUST(cuCtxDestroy, second);
}

/* One that was destroyed under another is current again when that is popped. */
CASE(context_stack_over_a_destroyed_one)
{
    CUresult (*create)(CUcontext *, unsigned int, CUdevice) = symbol_find("cuCtxCreate_v2");
    CUcontext first, other, current = NULL;
    CUdevice device = -1;

    MUST(cuCtxGetCurrent, &first);
    must("context", create(&other, 0, 0));
    MUST(cuCtxPushCurrent, first);
    DO(cuCtxDestroy, other);
    DO(cuCtxPopCurrent, &current);
    DO(cuCtxGetCurrent, &current);
    say_number("it is current", current == other);
    DO(cuCtxGetDevice, &device);
    say_number("its device", device);
    DO(cuMemAlloc, &(CUdeviceptr){0}, 16);
    DO(cuCtxSynchronize);
    DO(cuCtxPopCurrent, &current);
    DO(cuMemFree, device_bytes(16, 0));
}

CASE(context_set_current)
{
    CUcontext own = NULL, primary = NULL;

    MUST(cuCtxGetCurrent, &primary);
    MUST(cuCtxCreate_v2, &own, 0, 0);
    DO(cuCtxSetCurrent, primary);
    say_current("current", primary);
    DO(cuCtxSetCurrent, own);
    say_current("current", own);
    DO(cuCtxSetCurrent, NULL);
    say_current("below it", primary);
    DO(cuCtxSetCurrent, NULL);
    say_current("nothing left", primary);
    DO(cuCtxSynchronize);
    DO(cuCtxSetCurrent, own);
    DO(cuCtxSynchronize);
    MUST(cuCtxDestroy, own);
}

ALONE(destroyed_context)
{
    CUcontext own = NULL;
    CUstream stream = NULL;
    CUdeviceptr memory = 0;
    unsigned int version = 0;

    MUST(cuCtxCreate_v2, &own, 0, 0);
    MUST(cuStreamCreate, &stream, 0);
    MUST(cuMemAlloc, &memory, 4096);
    DO(cuCtxDestroy, own);
    DO(cuCtxSetCurrent, own);
    DO(cuCtxPushCurrent, own);
    DO(cuCtxGetApiVersion, own, &version);
    DO(cuStreamSynchronize, stream);
    DO(cuStreamDestroy, stream);
    DO(cuMemFree, memory);
    DO(cuCtxSynchronize);
    DO(cuCtxDestroy, own);
}

CASE(context_objects_of_another)
{
    CUcontext own = NULL;
    CUstream stream = NULL;
    CUevent event = NULL;
    CUdeviceptr memory = 0;

    MUST(cuStreamCreate, &stream, 0);
    MUST(cuEventCreate, &event, 0);
    memory = device_bytes(4096, 3);
    MUST(cuCtxCreate_v2, &own, 0, 0);
    DO(cuStreamSynchronize, stream);
    DO(cuStreamQuery, stream);
    DO(cuEventRecord, event, stream);
    DO(cuEventSynchronize, event);
    DO(cuEventQuery, event);
    DO(cuMemsetD8Async, memory, 1, 16, stream);
    DO(cuStreamSynchronize, stream);
    say_device_bytes("memory of the other", memory, 4096);
    DO(cuMemFree, memory);
    DO(cuStreamDestroy, stream);
    DO(cuEventDestroy, event);
    MUST(cuCtxDestroy, own);
}

CASE(context_event_of_another)
{
    CUcontext own = NULL;
    CUevent event = NULL;

    MUST(cuEventCreate, &event, 0);
    MUST(cuCtxCreate_v2, &own, 0, 0);
    DO(cuEventRecord, event, NULL);
    DO(cuCtxSynchronize);
    MUST(cuCtxDestroy, own);
}

CASE(context_limits)
{
    for (int limit = 0; limit < 10; limit++) {
        size_t value = 77, back = 77;

        if (say(text("limit %d", limit), CU(cuCtxGetLimit)(&value, (CUlimit)limit)) != CUDA_SUCCESS) {
            continue;
        }
        say_number(text("limit %d is", limit), (long long)value);
        say(text("limit %d, the same again", limit), CU(cuCtxSetLimit)((CUlimit)limit, value));
        CU(cuCtxGetLimit)(&back, (CUlimit)limit);
        say_number(text("limit %d is now", limit), (long long)back);
    }
}

CASE(context_limits_set)
{
    size_t value = 77;

    DO(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 4096);
    DO(cuCtxGetLimit, &value, CU_LIMIT_STACK_SIZE);
    say_number("stack", (long long)value);
    DO(cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20);
    DO(cuCtxGetLimit, &value, CU_LIMIT_MALLOC_HEAP_SIZE);
    say_number("heap", (long long)value);
    DO(cuCtxSetLimit, CU_LIMIT_PRINTF_FIFO_SIZE, 2 << 20);
    DO(cuCtxGetLimit, &value, CU_LIMIT_PRINTF_FIFO_SIZE);
    say_number("printf", (long long)value);
    DO(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, (size_t)1 << 40);
    DO(cuCtxSetLimit, (CUlimit)77, 1);
    DO(cuCtxGetLimit, &value, (CUlimit)77);
}

CASE(context_cache_and_shared_config)
{
    CUfunc_cache cache = 77;
    CUsharedconfig shared = 77;

    DO(cuCtxGetCacheConfig, &cache);
    say_number("cache", cache);
    for (int i = 0; i < 5; i++) {
        say(text("set cache %d", i), CU(cuCtxSetCacheConfig)((CUfunc_cache)i));
        MUST(cuCtxGetCacheConfig, &cache);
        say_number(text("cache after %d", i), cache);
    }
    for (int i = 0; i < 4; i++) {
        say(text("set shared %d", i), CU(cuCtxSetSharedMemConfig)((CUsharedconfig)i));
        MUST(cuCtxGetSharedMemConfig, &shared);
        say_number(text("shared after %d", i), shared);
    }
}

CASE(context_flags_changed)
{
    CUcontext own = NULL;
    unsigned int flags = 99;

    MUST(cuCtxCreate_v2, &own, 0, 0);
    for (unsigned int i = 0; i < 33; i += 4) {
        say(text("set %u", i), CU(cuCtxSetFlags)(i));
        MUST(cuCtxGetFlags, &flags);
        say_number(text("after %u", i), flags);
    }
    MUST(cuCtxDestroy, own);
}

CASE(context_ids_and_versions)
{
    unsigned long long primary_id = 0, own_id = 0, again = 0;
    unsigned int version = 0;
    CUcontext own = NULL;

    DO(cuCtxGetId, NULL, &primary_id);
    MUST(cuCtxCreate_v2, &own, 0, 0);
    DO(cuCtxGetId, own, &own_id);
    DO(cuCtxGetId, NULL, &again);
    say_number("own is current", own_id == again);
    say_number("all different", own_id != primary_id);
    DO(cuCtxGetApiVersion, own, &version);
    say_number("version", version);
    DO(cuCtxGetApiVersion, NULL, &version);
    say_number("version of the current one", version);
    MUST(cuCtxDestroy, own);
}

CASE(context_priorities)
{
    int least = 77, greatest = 77;

    DO(cuCtxGetStreamPriorityRange, &least, &greatest);
    printf("range: %d %d\n", least, greatest);
    DO(cuCtxGetStreamPriorityRange, NULL, &greatest);
    DO(cuCtxGetStreamPriorityRange, &least, NULL);
    DO(cuCtxGetStreamPriorityRange, NULL, NULL);
}

CASE(context_peer_access)
{
    CUcontext current = NULL, own = NULL;

    MUST(cuCtxGetCurrent, &current);
    DO(cuCtxEnablePeerAccess, current, 0);
    MUST(cuCtxCreate_v2, &own, 0, 0);
    DO(cuCtxEnablePeerAccess, current, 0);
    DO(cuCtxDisablePeerAccess, current);
    DO(cuCtxEnablePeerAccess, NULL, 0);
    DO(cuCtxEnablePeerAccess, current, 5);
    MUST(cuCtxDestroy, own);
}

CASE(context_synchronize)
{
    CUcontext own = NULL, primary = NULL;

    MUST(cuCtxGetCurrent, &primary);
    MUST(cuCtxCreate_v2, &own, CU_CTX_SCHED_BLOCKING_SYNC, 0);
    must("fill", fill(device_bytes(4096, 1), 3, 1024, NULL));
    DO(cuCtxSynchronize);
    DO(cuCtxSetCurrent, primary);
    MUST(cuCtxDestroy, own);
}

CASE(context_persisting_cache)
{
    DO(cuCtxResetPersistingL2Cache);
    DO(cuCtxResetPersistingL2Cache);
}

CASE(context_destroyed_with_work)
{
    CUcontext own = NULL;
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory;

    MUST(cuCtxCreate_v2, &own, 0, 0);
    MUST(cuModuleLoadData, &module, kernels_ptx);
    MUST(cuModuleGetFunction, &function, module, "fill");
    MUST(cuMemAlloc, &memory, 4 << 20);
    void *parameters[] = {&memory, &(unsigned int){1}, &(unsigned int){1 << 20}};
    for (int i = 0; i < 10; i++) {
        MUST(cuLaunchKernel, function, 4096, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL);
    }
    DO(cuCtxDestroy, own);
    DO(cuCtxSynchronize);
}

CASE(context_green)
{
    CUdevResource resource;

    DO(cuDeviceGetDevResource, 0, &resource, CU_DEV_RESOURCE_TYPE_SM);
    DO(cuGreenCtxCreate, &(CUgreenCtx){NULL}, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM);
}
