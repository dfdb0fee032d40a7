/* Linear copies: every direction, with and without a stream, pinned and pageable, of all sizes. */
#include "case.h"

static void pattern(uint8_t *memory, size_t bytes, uint8_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        memory[i] = (uint8_t)(seed + i * 11 + i / 256);
    }
}

CASE(copy_there_and_back)
{
    static const size_t sizes[] = {1, 3, 4, 100, 4095, 4096, 32768, 32769, 65536, 65537, 1 << 20, (3 << 20) + 5};

    for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint8_t *host = malloc(sizes[i]), *back = calloc(1, sizes[i]);
        CUdeviceptr memory;

        pattern(host, sizes[i], (uint8_t)i);
        MUST(cuMemAlloc, &memory, sizes[i]);
        say(text("to the device %zu", sizes[i]), CU(cuMemcpyHtoD)(memory, host, sizes[i]));
        say(text("from the device %zu", sizes[i]), CU(cuMemcpyDtoH)(back, memory, sizes[i]));
        say_number(text("same %zu", sizes[i]), !memcmp(host, back, sizes[i]));
        MUST(cuMemFree, memory);
        free(host);
        free(back);
    }
}

CASE(copy_zero_bytes)
{
    CUdeviceptr memory = device_bytes(16, 1);
    uint8_t host[16] = {0};

    DO(cuMemcpyHtoD, memory, host, 0);
    DO(cuMemcpyDtoH, host, memory, 0);
    DO(cuMemcpyDtoD, memory, memory, 0);
    DO(cuMemcpy, memory, memory, 0);
    DO(cuMemcpyHtoDAsync, memory, host, 0, NULL);
    DO(cuMemcpyDtoHAsync, host, memory, 0, NULL);
    DO(cuMemcpyDtoDAsync, memory, memory, 0, NULL);
    DO(cuMemcpyAsync, memory, memory, 0, NULL);
    DO(cuMemcpyHtoD, 0, NULL, 0);
    DO(cuMemcpyDtoH, NULL, 0, 0);
    say_device_bytes("unchanged", memory, 16);
}

CASE(copy_offsets_and_unaligned)
{
    CUdeviceptr memory = device_bytes(1000, 1);
    uint8_t host[1000];

    pattern(host, sizeof(host), 77);
    for (unsigned int shift = 1; shift < 9; shift += 2) {
        DO(cuMemcpyHtoD, memory + shift * 50, host + shift, 13);
        say_device_bytes("after it", memory, 1000);
    }
    DO(cuMemcpyDtoH, host + 3, memory + 501, 101);
    say_bytes("host", host, sizeof(host));
    DO(cuMemcpyDtoD, memory + 7, memory + 801, 77);
    say_device_bytes("device", memory, 1000);
}

CASE(copy_device_to_device)
{
    CUdeviceptr from = device_bytes(100000, 5), to = device_bytes(100000, 6);

    DO(cuMemcpyDtoD, to, from, 50000);
    say_device_bytes("half", to, 100000);
    DO(cuMemcpyDtoDAsync, to + 50000, from + 50000, 50000, NULL);
    DO(cuCtxSynchronize);
    say_device_bytes("whole", to, 100000);
}

CASE(copy_to_itself)
{
    CUdeviceptr memory = device_bytes(4096, 5);

    DO(cuMemcpyDtoD, memory, memory, 4096);
    say_device_bytes("same", memory, 4096);
}

CASE(copy_unified_forms)
{
    CUdeviceptr memory = device_bytes(5000, 5);
    uint8_t host[5000], *pinned;

    MUST(cuMemHostAlloc, (void **)&pinned, 5000, 0);
    DO(cuMemcpy, (CUdeviceptr)(uintptr_t)host, memory, 5000);
    say_bytes("pageable", host, sizeof(host));
    DO(cuMemcpy, (CUdeviceptr)(uintptr_t)pinned, (CUdeviceptr)(uintptr_t)host, 5000);
    say_bytes("pinned", pinned, 5000);
    pattern(host, sizeof(host), 9);
    DO(cuMemcpy, (CUdeviceptr)(uintptr_t)pinned, (CUdeviceptr)(uintptr_t)host, 5000);
    DO(cuMemcpy, memory, (CUdeviceptr)(uintptr_t)pinned, 5000);
    say_device_bytes("device", memory, 5000);
    DO(cuMemcpyAsync, memory, (CUdeviceptr)(uintptr_t)host, 100, NULL);
    DO(cuMemcpyAsync, (CUdeviceptr)(uintptr_t)pinned, memory, 5000, NULL);
    DO(cuStreamSynchronize, NULL);
    say_bytes("pinned again", pinned, 5000);
}

CASE(copy_asynchronous_pinned)
{
    enum { BYTES = 200000 };
    CUdeviceptr memory = device_bytes(BYTES, 5);
    uint8_t *there, *back;
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuMemHostAlloc, (void **)&there, BYTES, 0);
    MUST(cuMemHostAlloc, (void **)&back, BYTES, 0);
    pattern(there, BYTES, 3);
    DO(cuMemcpyHtoDAsync, memory, there, BYTES, stream);
    DO(cuMemcpyDtoHAsync, back, memory, BYTES, stream);
    DO(cuStreamSynchronize, stream);
    say_number("same", !memcmp(there, back, BYTES));
    DO(cuMemFreeHost, there);
    DO(cuMemFreeHost, back);
    DO(cuStreamDestroy, stream);
}

CASE(copy_asynchronous_pageable)
{
    enum { BYTES = 200000 };
    CUdeviceptr memory = device_bytes(BYTES, 5);
    uint8_t *there = malloc(BYTES), *back = calloc(1, BYTES);
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    pattern(there, BYTES, 3);
    DO(cuMemcpyHtoDAsync, memory, there, BYTES, stream);
    memset(there, 0, BYTES); /* it was read when the call returned */
    DO(cuMemcpyDtoHAsync, back, memory, BYTES, stream);
    DO(cuStreamSynchronize, stream);
    say_bytes("came back", back, BYTES);
    free(there);
    free(back);
}

CASE(copy_after_kernel_in_stream)
{
    enum { NR = 30000 };
    CUdeviceptr memory;
    unsigned int *back = calloc(NR, 4);
    CUstream stream;

    MUST(cuMemAlloc, &memory, NR * 4);
    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (unsigned int i = 0; i < 10; i++) {
        must("fill", fill(memory, i * 1000, NR, stream));
        MUST(cuMemcpyDtoHAsync, back, memory, NR * 4, stream);
        MUST(cuStreamSynchronize, stream);
        say_bytes(text("round %u", i), back, NR * 4);
    }
    free(back);
}

CASE(copy_peer_on_one_device)
{
    CUdeviceptr from = device_bytes(4000, 5), to = device_bytes(4000, 6);
    CUcontext context;

    MUST(cuCtxGetCurrent, &context);
    DO(cuMemcpyPeer, to, context, from, context, 2000);
    DO(cuMemcpyPeerAsync, to + 2000, context, from + 2000, context, 2000, NULL);
    DO(cuCtxSynchronize);
    say_device_bytes("copied", to, 4000);
    DO(cuMemcpyPeer, to, NULL, from, context, 10);
    DO(cuMemcpyPeer, to, context, from, NULL, 10);
}

CASE(copy_2d_host_to_device)
{
    CUdeviceptr memory = device_bytes(64 * 20, 5);
    uint8_t host[40 * 20];
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = host,
        .srcPitch = 40,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = memory,
        .dstPitch = 64,
        .WidthInBytes = 33,
        .Height = 19,
    };

    pattern(host, sizeof(host), 1);
    DO(cuMemcpy2D, &copy);
    say_device_bytes("device", memory, 64 * 20);
    copy.srcXInBytes = 3;
    copy.srcY = 1;
    copy.dstXInBytes = 7;
    copy.dstY = 2;
    copy.Height = 10;
    DO(cuMemcpy2DUnaligned, &copy);
    say_device_bytes("with offsets", memory, 64 * 20);
    DO(cuMemcpy2DAsync, &copy, NULL);
    DO(cuCtxSynchronize);
}

CASE(copy_2d_device_to_host)
{
    CUdeviceptr memory = device_bytes(64 * 20, 5);
    uint8_t host[40 * 20] = {0};
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = memory,
        .srcPitch = 64,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = host,
        .dstPitch = 40,
        .WidthInBytes = 33,
        .Height = 19,
    };

    DO(cuMemcpy2D, &copy);
    say_bytes("host", host, sizeof(host));
    copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.dstDevice = (CUdeviceptr)(uintptr_t)host;
    copy.WidthInBytes = 5;
    DO(cuMemcpy2D, &copy);
    say_bytes("host, unified", host, sizeof(host));
}

CASE(copy_2d_wrong_pitch)
{
    CUdeviceptr memory = device_bytes(64 * 20, 5);
    uint8_t host[40 * 20] = {0};
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = memory,
        .srcPitch = 30,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = host,
        .dstPitch = 40,
        .WidthInBytes = 33,
        .Height = 19,
    };

    DO(cuMemcpy2D, &copy);
    copy.srcPitch = 64;
    copy.Height = 21;
    DO(cuMemcpy2D, &copy);
    copy.Height = 0;
    DO(cuMemcpy2D, &copy);
    copy.Height = 1;
    copy.srcMemoryType = (CUmemorytype)99;
    DO(cuMemcpy2D, &copy);
}

CASE(copy_3d)
{
    CUdeviceptr memory = device_bytes(32 * 8 * 4, 5);
    uint8_t host[20 * 6 * 4];
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = host,
        .srcPitch = 20,
        .srcHeight = 6,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = memory,
        .dstPitch = 32,
        .dstHeight = 8,
        .WidthInBytes = 19,
        .Height = 5,
        .Depth = 3,
    };

    pattern(host, sizeof(host), 1);
    DO(cuMemcpy3D, &copy);
    say_device_bytes("device", memory, 32 * 8 * 4);
    copy.dstZ = 1;
    DO(cuMemcpy3DAsync, &copy, NULL);
    DO(cuCtxSynchronize);
    say_device_bytes("one slice on", memory, 32 * 8 * 4);
}

CASE(copy_batches)
{
    CUdeviceptr from = device_bytes(4096, 5), to = device_bytes(4096, 6);
    CUdeviceptr destinations[2] = {to, to + 2048}, sources[2] = {from + 2048, from};
    size_t sizes[2] = {1000, 2000}, first = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuMemcpyBatchAsync, destinations, sources, sizes, 2, &attributes, &first, 1, stream);
    DO(cuStreamSynchronize, stream);
    say_device_bytes("device", to, 4096);
    void *pinned;
    MUST(cuMemAllocHost, &pinned, 4096);
    pattern(pinned, 4096, 9);
    sources[0] = (CUdeviceptr)(uintptr_t)pinned;
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    DO(cuMemcpyBatchAsync, destinations, sources, sizes, 2, &attributes, &first, 1, stream);
    memset(pinned, 0, 4096);
    DO(cuStreamSynchronize, stream);
    say_device_bytes("from pinned memory that is written at once", to, 4096);
}

CASE(copy_batches_of_boxes)
{
    enum { WIDTH = 16, HEIGHT = 4, DEPTH = 2 };
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = WIDTH, .Height = HEIGHT, .Depth = DEPTH, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    CUdeviceptr from = device_bytes(8192, 5), to = device_bytes(8192, 6);
    CUDA_MEMCPY3D_BATCH_OP ops[4] = {0};
    CUarray array = NULL;
    CUstream stream;
    uint8_t host[WIDTH * HEIGHT] = {0};

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuArray3DCreate, &array, &shape);
    for (int i = 0; i < 4; i++) {
        ops[i].src.type = ops[i].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        ops[i].src.op.ptr.ptr = from + 100 * i;
        ops[i].dst.op.ptr.ptr = to + 1000 * i;
        ops[i].extent = (CUextent3D){WIDTH, HEIGHT, DEPTH};
        ops[i].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    }
    ops[1].src.op.ptr.rowLength = 2 * WIDTH;
    ops[1].dst.op.ptr.layerHeight = HEIGHT + 3;
    ops[2].dst = (CUmemcpy3DOperand){.type = CU_MEMCPY_OPERAND_TYPE_ARRAY, .op.array.array = array};
    DO(cuMemcpy3DBatchAsync, 3, ops, 0, stream);
    ops[3].src = ops[2].dst;
    ops[3].src.op.array.offset = (CUoffset3D){2, 1, 1};
    ops[3].extent = (CUextent3D){WIDTH - 2, HEIGHT - 1, 1};
    DO(cuMemcpy3DBatchAsync, 1, &ops[3], 0, stream);
    DO(cuStreamSynchronize, stream);
    say_device_bytes("device", to, 8192);
    pattern(host, sizeof(host), 9);
    ops[0].src.op.ptr.ptr = (CUdeviceptr)(uintptr_t)host;
    ops[0].extent.depth = 1;
    ops[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    DO(cuMemcpy3DBatchAsync, 1, ops, 0, stream);
    memset(host, 0, sizeof(host));
    DO(cuStreamSynchronize, stream);
    say_device_bytes("from the host", to, 8192);
    ROW("no operations", cuMemcpy3DBatchAsync, 0, ops, 0, stream);
    ROW("no list", cuMemcpy3DBatchAsync, 1, NULL, 0, stream);
    ROW("flags", cuMemcpy3DBatchAsync, 1, ops, 1, stream);
    ROW("the default stream", cuMemcpy3DBatchAsync, 1, ops, 0, NULL);
    ops[0].extent.width = 0;
    ROW("nothing to copy", cuMemcpy3DBatchAsync, 1, ops, 0, stream);
    ops[1].src.op.ptr.rowLength = WIDTH - 1;
    ROW("rows that are too short", cuMemcpy3DBatchAsync, 1, &ops[1], 0, stream);
    ops[2].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    ROW("no order", cuMemcpy3DBatchAsync, 1, &ops[2], 0, stream);
}

CASE(copy_large)
{
    enum { BYTES = 24 << 20 };
    CUdeviceptr memory, other;
    uint8_t *host = malloc(BYTES), *back = malloc(BYTES);

    pattern(host, BYTES, 3);
    MUST(cuMemAlloc, &memory, BYTES);
    MUST(cuMemAlloc, &other, BYTES);
    DO(cuMemcpyHtoD, memory, host, BYTES);
    DO(cuMemcpyDtoD, other, memory, BYTES);
    DO(cuMemcpyDtoH, back, other, BYTES);
    say_number("same", !memcmp(host, back, BYTES));
    free(host);
    free(back);
}
