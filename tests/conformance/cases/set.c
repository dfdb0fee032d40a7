/* Setting memory: 8, 16, 32 bits, rows and boxes, with and without a stream. */
#include "case.h"

enum { BYTES = 4096 };

CASE(set_bytes)
{
    CUdeviceptr memory = device_bytes(BYTES, 5);

    DO(cuMemsetD8, memory, 0x5a, BYTES);
    say_device_bytes("all", memory, BYTES);
    DO(cuMemsetD8, memory + 3, 0xff, 13);
    say_device_bytes("some", memory, BYTES);
    DO(cuMemsetD8Async, memory + 100, 0x11, 1, NULL);
    say_device_bytes("one", memory, BYTES);
}

CASE(set_halves)
{
    CUdeviceptr memory = device_bytes(BYTES, 5);

    DO(cuMemsetD16, memory, 0x1234, BYTES / 2);
    say_device_bytes("all", memory, BYTES);
    DO(cuMemsetD16, memory + 6, 0xabcd, 9);
    say_device_bytes("some", memory, BYTES);
    DO(cuMemsetD16Async, memory + 100, 0x7777, 5, NULL);
    say_device_bytes("few", memory, BYTES);
}

CASE(set_words)
{
    CUdeviceptr memory = device_bytes(BYTES, 5);

    DO(cuMemsetD32, memory, 0x12345678, BYTES / 4);
    say_device_bytes("all", memory, BYTES);
    DO(cuMemsetD32, memory + 12, 0xdeadbeef, 9);
    say_device_bytes("some", memory, BYTES);
    DO(cuMemsetD32Async, memory + 100, 7, 5, NULL);
    say_device_bytes("few", memory, BYTES);
}

CASE(set_boxes)
{
    CUdeviceptr memory = device_bytes(BYTES, 5);

    DO(cuMemsetD2D8, memory, 64, 0x5a, 33, 10);
    say_device_bytes("bytes", memory, BYTES);
    DO(cuMemsetD2D16, memory + 2, 64, 0x4321, 11, 20);
    say_device_bytes("halves", memory, BYTES);
    DO(cuMemsetD2D32, memory + 4, 64, 0x1020304, 7, 30);
    say_device_bytes("words", memory, BYTES);
    DO(cuMemsetD2D8Async, memory, 64, 1, 3, 64, NULL);
    DO(cuMemsetD2D16Async, memory + 8, 64, 2, 3, 64, NULL);
    DO(cuMemsetD2D32Async, memory + 16, 64, 3, 3, 64, NULL);
    DO(cuCtxSynchronize);
    say_device_bytes("in a stream", memory, BYTES);
}

CASE(set_nothing)
{
    CUdeviceptr memory = device_bytes(BYTES, 5);

    DO(cuMemsetD8, memory, 1, 0);
    DO(cuMemsetD16, memory, 1, 0);
    DO(cuMemsetD32, memory, 1, 0);
    DO(cuMemsetD2D8, memory, 64, 1, 0, 5);
    DO(cuMemsetD2D8, memory, 64, 1, 5, 0);
    DO(cuMemsetD2D32, memory, 64, 1, 0, 0);
    DO(cuMemsetD8Async, memory, 1, 0, NULL);
    say_device_bytes("unchanged", memory, BYTES);
}

CASE(set_one_row_ignores_pitch)
{
    CUdeviceptr memory = device_bytes(BYTES, 5);

    DO(cuMemsetD2D8, memory, 0, 9, 100, 1);
    say_device_bytes("one row", memory, BYTES);
}

CASE(set_in_streams_in_order)
{
    CUdeviceptr memory = device_bytes(BYTES, 5);
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (unsigned int i = 0; i < 50; i++) {
        MUST(cuMemsetD8Async, memory, (unsigned char)i, BYTES, stream);
        MUST(cuMemsetD32Async, memory + 4 * i, i, 10, stream);
    }
    DO(cuStreamSynchronize, stream);
    say_device_bytes("the last", memory, BYTES);
}

CASE(set_pinned_host_memory)
{
    uint8_t *pinned;

    MUST(cuMemHostAlloc, (void **)&pinned, BYTES, CU_MEMHOSTALLOC_DEVICEMAP);
    memset(pinned, 1, BYTES);
    DO(cuMemsetD8, (CUdeviceptr)(uintptr_t)pinned, 0x42, 1000);
    DO(cuCtxSynchronize);
    say_bytes("pinned", pinned, BYTES);
    DO(cuMemsetD32Async, (CUdeviceptr)(uintptr_t)pinned + 2000, 5, 100, NULL);
    DO(cuCtxSynchronize);
    say_bytes("pinned again", pinned, BYTES);
}
