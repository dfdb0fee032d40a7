/*
 * Calls of a thread in which no context is current, with handles and addresses of one that is there. What names its
 * context by a handle needs no current one: the runtime asks for the end of an event in a thread that did nothing yet.
 */
#include "case.h"

static CUcontext context;

static void unbind(void)
{
    MUST(cuCtxGetCurrent, &context);
    MUST(cuCtxSetCurrent, NULL);
}

static void bind(void)
{
    MUST(cuCtxSetCurrent, context);
}

static void CUDA_CB count(void *number)
{
    ++*(int *)number;
}

static void CUDA_CB count_in_stream(CUstream stream, CUresult status, void *number)
{
    (void)stream;
    *(int *)number += status == CUDA_SUCCESS ? 10 : 1000;
}

CASE(unbound_events)
{
    CUevent first, second, made = NULL;
    CUstream stream;
    float milliseconds = -1;

    MUST(cuEventCreate, &first, 0);
    MUST(cuEventCreate, &second, 0);
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuEventRecord, first, stream);
    unbind();
    ROW("no context", cuEventQuery, second);
    ROW("no context", cuEventSynchronize, first);
    ROW("no context", cuEventQuery, first);
    ROW("no context", cuEventRecord, second, stream);
    ROW("no context and no stream", cuEventRecord, second, NULL);
    ROW("no context and the per-thread stream", cuEventRecord, second, CU_STREAM_PER_THREAD);
    ROW("no context", cuEventRecordWithFlags, second, stream, 0);
    ROW("no context, again,", cuEventSynchronize, second);
    ROW("no context", cuEventElapsedTime, &milliseconds, first, second);
    say_number("it took time", milliseconds >= 0);
    ROW("no context", cuEventCreate, &made, 0);
    ROW("no context", cuEventDestroy, second);
    bind();
    DO(cuEventDestroy, first);
}

CASE(unbound_streams)
{
    CUstream stream, made = NULL;
    CUevent event;
    CUcontext of_stream = NULL;
    CUdevice device = -1;
    CUstreamCaptureStatus status;
    CUstreamAttrValue value = {{0}};
    unsigned long long number = 0;
    unsigned int flags = 99;
    int priority = 99, nr_called = 0;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &event, 0);
    unbind();
    ROW("no context", cuStreamQuery, stream);
    ROW("no context", cuStreamSynchronize, stream);
    ROW("no context and no stream", cuStreamQuery, NULL);
    ROW("no context and no stream", cuStreamSynchronize, NULL);
    ROW("no context and the per-thread stream", cuStreamSynchronize, CU_STREAM_PER_THREAD);
    ROW("no context", cuStreamWaitEvent, stream, event, 0);
    ROW("no context and no stream", cuStreamWaitEvent, NULL, event, 0);
    ROW("no context", cuStreamGetFlags, stream, &flags);
    say_number("flags", flags);
    ROW("no context", cuStreamGetPriority, stream, &priority);
    say_number("priority", priority);
    ROW("no context", cuStreamGetId, stream, &number);
    ROW("no context", cuStreamGetCtx, stream, &of_stream);
    say_number("its context", of_stream == context);
    ROW("no context and no stream", cuStreamGetCtx, NULL, &of_stream);
    ROW("no context", cuStreamGetDevice, stream, &device);
    say_number("device", device);
    ROW("no context", cuStreamIsCapturing, stream, &status);
    ROW("no context and no stream", cuStreamIsCapturing, NULL, &status);
    ROW("no context", cuStreamGetAttribute, stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
    ROW("no context", cuStreamSetAttribute, stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
    ROW("no context", cuStreamCopyAttributes, stream, stream);
    ROW("no context", cuLaunchHostFunc, stream, count, &nr_called);
    ROW("no context and no stream", cuLaunchHostFunc, NULL, count, &nr_called);
    ROW("no context", cuStreamAddCallback, stream, count_in_stream, &nr_called, 0);
    ROW("no context, again,", cuStreamSynchronize, stream);
    say_number("called", nr_called);
    ROW("no context", cuStreamCreate, &made, 0);
    ROW("no context", cuStreamCreateWithPriority, &made, 0, 0);
    ROW("no context", cuStreamDestroy, stream);
    bind();
    DO(cuCtxSynchronize);
}

CASE(unbound_memory)
{
    CUdeviceptr memory, base = 0, managed;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    CUcontext of_memory = NULL;
    unsigned int type = 0, flags = 99;
    void *places[] = {&type}, *pinned, *more = NULL;
    size_t size = 0, total = 0;
    static uint8_t own[8192];
    int value = 0;

    MUST(cuMemAlloc, &memory, 4096);
    MUST(cuMemAllocManaged, &managed, 4096, CU_MEM_ATTACH_GLOBAL);
    MUST(cuMemHostAlloc, &pinned, 4096, 0);
    unbind();
    ROW("no context", cuMemAlloc, &base, 4096);
    ROW("no context", cuMemAllocPitch, &base, &size, 64, 64, 4);
    ROW("no context", cuMemAllocManaged, &base, 4096, CU_MEM_ATTACH_GLOBAL);
    ROW("no context", cuMemHostAlloc, &more, 4096, 0);
    ROW("no context", cuMemAllocHost, &more, 4096);
    ROW("no context", cuMemHostRegister, own, sizeof(own), 0);
    ROW("no context", cuMemHostUnregister, own);
    ROW("no context", cuMemGetInfo, &size, &total);
    ROW("no context", cuMemGetAddressRange, &base, &size, memory + 16);
    say_number("begins there", base == memory);
    say_number("bytes", (long long)size);
    ROW("no context", cuMemHostGetDevicePointer, &base, pinned, 0);
    ROW("no context", cuMemHostGetFlags, &flags, pinned);
    ROW("no context", cuPointerGetAttribute, &of_memory, CU_POINTER_ATTRIBUTE_CONTEXT, memory);
    say_number("its context", of_memory == context);
    ROW("no context", cuPointerGetAttributes, 1, which, places, memory);
    say_number("type", type);
    ROW("no context", cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)pinned);
    value = 1;
    ROW("no context", cuPointerSetAttribute, &value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory);
    ROW("no context", cuMemRangeGetAttribute, &value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, 4096);
    ROW("no context", cuMemFreeHost, pinned);
    ROW("no context and managed memory", cuMemFree, managed);
    ROW("no context", cuMemFree, memory);
    ROW("no context, again,", cuMemFree, memory);
    ROW("no context and address 0", cuMemFree, 0);
    ROW("no context and address 0", cuMemFreeHost, NULL);
    bind();
    DO(cuCtxSynchronize);
}

CASE(unbound_copies)
{
    CUdeviceptr memory = device_bytes(4096, 1), other = device_bytes(4096, 2);
    uint8_t host[4096] = {0};
    CUDA_MEMCPY2D rectangle = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = memory,
                               .srcPitch = 64,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = other,
                               .dstPitch = 64,
                               .WidthInBytes = 32,
                               .Height = 8};
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = memory,
                         .srcPitch = 64,
                         .srcHeight = 8,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = other + 2048,
                         .dstPitch = 64,
                         .dstHeight = 8,
                         .WidthInBytes = 32,
                         .Height = 8,
                         .Depth = 1};
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    unbind();
    ROW("no context", cuMemcpyHtoD, memory, host, 16);
    ROW("no context", cuMemcpyDtoH, host, memory, 16);
    ROW("no context", cuMemcpyDtoD, other, memory, 16);
    ROW("no context", cuMemcpy, other, memory, 16);
    ROW("no context", cuMemcpyHtoDAsync, memory, host, 16, stream);
    ROW("no context and no stream", cuMemcpyHtoDAsync, memory, host, 16, NULL);
    ROW("no context", cuMemcpyDtoHAsync, host, memory, 16, stream);
    ROW("no context", cuMemcpyDtoDAsync, other + 16, memory + 16, 16, stream);
    ROW("no context", cuMemcpyAsync, other + 32, memory + 32, 16, stream);
    ROW("no context", cuMemcpyPeerAsync, other + 64, context, memory + 64, context, 16, stream);
    ROW("no context", cuMemcpyPeer, other + 96, context, memory + 96, context, 16);
    ROW("no context", cuMemcpy2D, &rectangle);
    ROW("no context", cuMemcpy2DUnaligned, &rectangle);
    ROW("no context", cuMemcpy2DAsync, &rectangle, stream);
    ROW("no context", cuMemcpy3D, &box);
    ROW("no context", cuMemcpy3DAsync, &box, stream);
    ROW("no context", cuMemsetD8, memory, 5, 16);
    ROW("no context", cuMemsetD8Async, memory + 16, 5, 16, stream);
    ROW("no context", cuMemsetD32Async, memory + 32, 5, 4, stream);
    ROW("no context", cuMemsetD2D8Async, memory + 64, 16, 6, 8, 2, stream);
    ROW("no context and no stream", cuMemsetD8Async, memory, 5, 16, NULL);
    bind();
    DO(cuStreamSynchronize, stream);
    say_device_bytes("one", memory, 4096);
    say_device_bytes("other", other, 4096);
}

CASE(unbound_pools)
{
    CUdeviceptr memory = 0, from_pool = 0;
    CUmemoryPool pool;
    CUstream stream;
    CUdevice device;
    cuuint64_t value = 0;

    MUST(cuCtxGetDevice, &device);
    MUST(cuDeviceGetMemPool, &pool, device);
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    unbind();
    ROW("no context", cuMemAllocAsync, &memory, 4096, stream);
    ROW("no context and no stream", cuMemAllocAsync, &from_pool, 4096, NULL);
    ROW("no context", cuMemAllocFromPoolAsync, &from_pool, 4096, pool, stream);
    ROW("no context", cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
    ROW("no context", cuMemPoolTrimTo, pool, 0);
    bind();
    if (memory == 0) {
        MUST(cuMemAllocAsync, &memory, 4096, stream);
    }
    if (from_pool == 0) {
        MUST(cuMemAllocFromPoolAsync, &from_pool, 4096, pool, stream);
    }
    unbind();
    ROW("no context", cuMemFreeAsync, memory, stream);
    ROW("no context, at once,", cuMemFree, from_pool);
    bind();
    DO(cuStreamSynchronize, stream);
}

CASE(unbound_arrays)
{
    CUDA_ARRAY_DESCRIPTOR shape = {.Width = 64, .Height = 8, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1}, found;
    CUDA_ARRAY3D_DESCRIPTOR solid = {
        .Width = 16, .Height = 8, .Depth = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array, made = NULL;
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY}, read;
    CUDA_TEXTURE_DESC texture = {.filterMode = CU_TR_FILTER_MODE_POINT};
    CUtexObject object = 0, second = 0;
    float row_of_it[64] = {0};
    CUDA_MEMCPY2D into = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = row_of_it,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .WidthInBytes = sizeof(row_of_it),
                          .Height = 1};

    MUST(cuArrayCreate, &array, &shape);
    resource.res.array.hArray = into.dstArray = array;
    MUST(cuTexObjectCreate, &object, &resource, &texture, NULL);
    unbind();
    ROW("no context", cuArrayCreate, &made, &shape);
    ROW("no context", cuArray3DCreate, &made, &solid);
    ROW("no context", cuArrayGetDescriptor, &found, array);
    ROW("no context", cuMemcpy2D, &into);
    ROW("no context", cuMemcpyHtoA, array, 0, row_of_it, 16);
    ROW("no context", cuTexObjectCreate, &second, &resource, &texture, NULL);
    ROW("no context", cuTexObjectGetResourceDesc, &read, object);
    ROW("no context", cuTexObjectDestroy, object);
    ROW("no context", cuArrayDestroy, array);
    bind();
    DO(cuCtxSynchronize);
}

CASE(unbound_modules)
{
    CUmodule module, made = NULL, found = NULL;
    CUfunction function = NULL, other = NULL;
    CUfunctionLoadingState state;
    CUdeviceptr address = 0;
    CUlinkState link = NULL;
    const char *name = NULL;
    size_t bytes = 0, offset = 0;
    unsigned int nr_functions = 0;
    int value = 0, block = 0;

    MUST(cuModuleLoadData, &module, kernels_ptx);
    MUST(cuModuleGetFunction, &function, module, "fill");
    unbind();
    ROW("no context", cuModuleLoadData, &made, kernels_ptx);
    ROW("no context", cuModuleGetFunction, &other, module, "fill");
    say_number("the same", other == function);
    ROW("no context", cuModuleGetGlobal, &address, &bytes, module, "counter");
    ROW("no context", cuModuleGetFunctionCount, &nr_functions, module);
    ROW("no context", cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
    ROW("no context", cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024);
    ROW("no context", cuFuncSetCacheConfig, function, CU_FUNC_CACHE_PREFER_L1);
    ROW("no context", cuFuncGetModule, &found, function);
    say_number("its module", found == module);
    ROW("no context", cuFuncGetName, &name, function);
    ROW("no context", cuFuncGetParamInfo, function, 0, &offset, &bytes);
    ROW("no context", cuFuncIsLoaded, &state, function);
    ROW("no context", cuFuncLoad, function);
    ROW("no context", cuOccupancyMaxActiveBlocksPerMultiprocessor, &value, function, 128, 0);
    ROW("no context", cuOccupancyMaxPotentialBlockSize, &value, &block, function, NULL, 0, 0);
    ROW("no context", cuOccupancyAvailableDynamicSMemPerBlock, &bytes, function, 1, 128);
    ROW("no context", cuLinkCreate, 0, NULL, NULL, &link);
    ROW("no context", cuModuleUnload, module);
    bind();
    DO(cuCtxSynchronize);
}

CASE(unbound_libraries)
{
    CUlibrary library, made = NULL;
    CUkernel kernel = NULL;
    CUfunction function = NULL, before = NULL;
    CUmodule module = NULL;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    int value = 0;

    MUST(cuLibraryLoadData, &library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0);
    MUST(cuLibraryGetKernel, &kernel, library, "fill");
    MUST(cuKernelGetFunction, &before, kernel);
    unbind();
    ROW("no context", cuLibraryLoadData, &made, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0);
    ROW("no context", cuLibraryGetKernel, &kernel, library, "fill");
    ROW("no context", cuKernelGetFunction, &function, kernel);
    ROW("no context", cuLibraryGetModule, &module, library);
    ROW("no context", cuLibraryGetGlobal, &address, &bytes, library, "counter");
    ROW("no context", cuKernelGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0);
    ROW("no context and a function of before", cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
        before);
    ROW("no context and a kernel", cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
        (CUfunction)kernel);
    ROW("no context", cuLibraryUnload, library);
    bind();
    DO(cuCtxSynchronize);
}

CASE(unbound_launches)
{
    CUdeviceptr memory = device_bytes(4096, 0);
    CUfunction function = function_of("fill");
    CUlibrary library;
    CUkernel kernel;
    CUstream stream;
    unsigned int value = 7, nr_words = 256;
    void *parameters[] = {&memory, &value, &nr_words};
    CUlaunchConfig config = {
        .gridDimX = 2, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1};

    MUST(cuLibraryLoadData, &library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0);
    MUST(cuLibraryGetKernel, &kernel, library, "fill");
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    config.hStream = stream;
    unbind();
    ROW("no context", cuLaunchKernel, function, 2, 1, 1, 128, 1, 1, 0, stream, parameters, NULL);
    bind();
    DO(cuStreamSynchronize, stream);
    say_device_bytes("filled", memory, 4096);
    unbind();
    value = 8;
    ROW("no context and no stream", cuLaunchKernel, function, 2, 1, 1, 128, 1, 1, 0, NULL, parameters, NULL);
    ROW("no context and the per-thread stream", cuLaunchKernel, function, 2, 1, 1, 128, 1, 1, 0, CU_STREAM_PER_THREAD,
        parameters, NULL);
    bind();
    DO(cuCtxSynchronize);
    say_device_bytes("filled", memory, 4096);
    unbind();
    value = 9;
    ROW("no context", cuLaunchKernelEx, &config, function, parameters, NULL);
    ROW("no context", cuLaunchCooperativeKernel, function, 2, 1, 1, 128, 1, 1, 0, stream, parameters);
    ROW("no context and a kernel", cuLaunchKernel, (CUfunction)kernel, 2, 1, 1, 128, 1, 1, 0, stream, parameters, NULL);
    ROW("no context", cuStreamSynchronize, stream);
    bind();
    DO(cuStreamSynchronize, stream);
    say_device_bytes("filled", memory, 4096);
}

CASE(unbound_graphs)
{
    CUdeviceptr memory = device_bytes(4096, 0);
    CUgraph graph = NULL, captured = NULL;
    CUgraphExec executable = NULL, second = NULL;
    CUgraphNode node;
    CUgraphExecUpdateResultInfo info;
    CUstream stream;
    unsigned int value = 7, nr_words = 256;
    void *parameters[] = {&memory, &value, &nr_words};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = function_of("fill"),
                                      .gridDimX = 2,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 128,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = parameters};

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    unbind();
    ROW("no context", cuGraphCreate, &graph, 0);
    bind();
    if (!graph) {
        MUST(cuGraphCreate, &graph, 0);
    }
    MUST(cuGraphAddKernelNode, &node, graph, NULL, 0, &kernel);
    MUST(cuGraphInstantiate, &executable, graph, 0);
    unbind();
    ROW("no context", cuGraphInstantiate, &second, graph, 0);
    ROW("no context", cuGraphUpload, executable, stream);
    ROW("no context", cuGraphLaunch, executable, stream);
    ROW("no context and no stream", cuGraphLaunch, executable, NULL);
    ROW("no context", cuGraphExecUpdate, executable, graph, &info);
    ROW("no context", cuGraphExecDestroy, executable);
    ROW("no context", cuGraphDestroy, graph);
    ROW("no context", cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    ROW("no context, captured,", cuLaunchKernel, kernel.func, 2, 1, 1, 128, 1, 1, 0, stream, parameters, NULL);
    ROW("no context", cuStreamEndCapture, stream, &captured);
    say_number("captured", captured != NULL);
    bind();
    DO(cuStreamSynchronize, stream);
    say_device_bytes("filled", memory, 4096);
}

CASE(unbound_waits_and_writes)
{
    CUdeviceptr memory = device_bytes(4096, 0);
    CUstreamBatchMemOpParams batch = {
        .writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = memory + 64, .value = 5}};
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    unbind();
    ROW("no context", cuStreamWriteValue32, stream, memory, 77, 0);
    ROW("no context", cuStreamWaitValue32, stream, memory, 0, CU_STREAM_WAIT_VALUE_GEQ);
    ROW("no context", cuStreamBatchMemOp, stream, 1, &batch, 0);
    ROW("no context and no stream", cuStreamWriteValue32, NULL, memory + 128, 77, 0);
    bind();
    DO(cuStreamSynchronize, stream);
    say_device_bytes("written", memory, 4096);
}
