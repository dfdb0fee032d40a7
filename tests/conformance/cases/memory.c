/* Device memory: allocating, freeing, what is known of it. */
#include "case.h"

CASE(memory_alloc_and_free)
{
    CUdeviceptr memory;

    DO(cuMemAlloc, &memory, 1);
    DO(cuMemFree, memory);
    DO(cuMemAlloc, &memory, 4096);
    DO(cuMemFree, memory);
    DO(cuMemAlloc, &memory, (size_t)64 << 20);
    say_number("aligned to 256 bytes", memory % 256 == 0);
    DO(cuMemFree, memory);
    DO(cuMemFree, 0);
}

CASE(memory_many_allocations)
{
    enum { NR = 300 };
    CUdeviceptr memory[NR];
    unsigned int nr_overlapping = 0;

    for (unsigned int i = 0; i < NR; i++) {
        MUST(cuMemAlloc, &memory[i], 100 + i * 13);
        MUST(cuMemsetD8, memory[i], (unsigned char)i, 100 + i * 13);
    }
    for (unsigned int i = 0; i < NR; i++) {
        for (unsigned int j = 0; j < i; j++) {
            nr_overlapping += memory[i] < memory[j] + 100 + j * 13 && memory[j] < memory[i] + 100 + i * 13;
        }
    }
    say_number("overlapping", nr_overlapping);
    for (unsigned int i = 0; i < NR; i += 50) {
        say_device_bytes(text("allocation %u", i), memory[i], 100 + i * 13);
    }
    for (unsigned int i = 0; i < NR; i++) {
        MUST(cuMemFree, memory[i]);
    }
    DO(cuMemFree, memory[NR / 2]);
}

CASE(memory_alloc_pitch)
{
    static const size_t widths[] = {1, 4, 511, 512, 513, 1000};
    static const unsigned int elements[] = {4, 8, 16};

    for (unsigned int i = 0; i < 6; i++) {
        for (unsigned int e = 0; e < 3; e++) {
            CUdeviceptr memory = 0;
            size_t pitch = 0, size = 0;
            CUresult result = CU(cuMemAllocPitch)(&memory, &pitch, widths[i], 5, elements[e]);

            say(text("pitched, %zu bytes, elements of %u", widths[i], elements[e]), result);
            say_number(text("pitch of %zu and %u", widths[i], elements[e]), (long long)pitch);
            MUST(cuMemGetAddressRange, NULL, &size, memory);
            say_number(text("size of %zu and %u", widths[i], elements[e]), (long long)size);
            MUST(cuMemFree, memory);
        }
    }
}

CASE(memory_get_info)
{
    const size_t held = (size_t)256 << 20;
    size_t before = 0, during = 0, after = 0, total = 0;
    bool is_less = false, is_more = false;
    CUdeviceptr memory;

    DO(cuMemGetInfo, &before, &total);
    say_number("free is at most total", before <= total && total > 0);
    DO(cuMemAlloc, &memory, held);
    DO(cuMemGetInfo, &during, &total);
    say_number("what is held is not free", total - during >= held);
    DO(cuMemFree, memory);
    /* Other programs hold memory and let it go meanwhile. */
    for (int i = 0; i < 100 && !(is_less && is_more); i++) {
        MUST(cuMemGetInfo, &before, &total);
        MUST(cuMemAlloc, &memory, held);
        MUST(cuMemGetInfo, &during, &total);
        MUST(cuMemFree, memory);
        MUST(cuMemGetInfo, &after, &total);
        is_less |= before - during == held;
        is_more |= after - during == held;
    }
    say_number("that much less is free", is_less);
    say_number("and that much more later", is_more);
}

CASE(memory_address_range)
{
    CUdeviceptr memory = device_bytes(10000, 1), base = 0;
    size_t size = 0;

    DO(cuMemGetAddressRange, &base, &size, memory);
    say_number("base", (long long)(memory - base));
    say_number("size", (long long)size);
    DO(cuMemGetAddressRange, &base, &size, memory + 9999);
    say_number("base from the last byte", (long long)(memory - base));
    DO(cuMemGetAddressRange, &base, NULL, memory + 1);
    DO(cuMemGetAddressRange, NULL, &size, memory + 1);
    DO(cuMemGetAddressRange, NULL, NULL, memory + 1);
    MUST(cuMemFree, memory);
    DO(cuMemGetAddressRange, &base, &size, memory);
}

CASE(memory_free_in_the_middle)
{
    CUdeviceptr memory = device_bytes(8192, 1);

    DO(cuMemFree, memory + 1);
    DO(cuMemFree, memory + 4096);
    say_device_bytes("still there", memory, 8192);
    DO(cuMemFree, memory);
    DO(cuMemFree, memory);
}

CASE(memory_more_than_there_is)
{
    CUdeviceptr memory = 0;
    size_t free = 0, total = 0;

    DO(cuMemAlloc, &memory, (size_t)1 << 50);
    DO(cuMemAlloc, &memory, SIZE_MAX);
    MUST(cuMemGetInfo, &free, &total);
    DO(cuMemAlloc, &memory, total + 1);
    DO(cuMemAlloc, &memory, 4096);
    DO(cuMemFree, memory);
}

CASE(memory_freed_while_in_use)
{
    CUdeviceptr memory = device_bytes(4096, 0);
    CUstream stream;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (unsigned int i = 0; i < 20; i++) {
        must("fill", fill(memory, i, 1024, stream));
    }
    DO(cuMemFree, memory);
    DO(cuStreamSynchronize, stream);
}

CASE(memory_that_was_freed_is_copied)
{
    CUdeviceptr memory = device_bytes(8 << 20, 0), kept = device_bytes(4096, 1);
    uint8_t byte;

    DO(cuMemFree, memory);
    ROW("is set", cuMemsetD8, memory, 5, 100);
    ROW("to the host", cuMemcpy, (CUdeviceptr)&byte, memory, 1);
    ROW("from the host", cuMemcpy, memory, (CUdeviceptr)&byte, 1);
    ROW("to the device", cuMemcpy, kept, memory, 4096);
    ROW("from the device", cuMemcpyAsync, memory, kept, 4096, NULL);
    ROW("after all", cuMemcpy, (CUdeviceptr)&byte, kept, 1);
    MUST(cuMemAlloc, &memory, 256);
    DO(cuMemFree, memory);
    ROW("small, is set", cuMemsetD32, memory, 5, 10);
    ROW("small, in a stream", cuMemsetD8Async, memory, 5, 10, NULL);
    DO(cuStreamSynchronize, NULL);
}

CASE(memory_managed)
{
    CUdeviceptr memory = 0;

    if (DO(cuMemAllocManaged, &memory, 4096, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS) {
        return;
    }
    memset((void *)memory, 3, 4096);
    say("fill", fill(memory, 100, 512, NULL));
    DO(cuCtxSynchronize);
    say_bytes("seen by the host", (void *)memory, 4096);
    DO(cuMemFree, memory);
    DO(cuMemAllocManaged, &memory, 4096, CU_MEM_ATTACH_HOST);
    DO(cuMemFree, memory);
}

CASE(memory_advise_and_prefetch)
{
    CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUdeviceptr memory = 0;

    if (DO(cuMemAllocManaged, &memory, 65536, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS) {
        return;
    }
    DO(cuMemAdvise, memory, 65536, CU_MEM_ADVISE_SET_READ_MOSTLY, device);
    DO(cuMemPrefetchAsync, memory, 65536, device, 0, NULL);
    DO(cuCtxSynchronize);
    DO(cuMemFree, memory);
}

CASE(memory_survives_other_work)
{
    CUdeviceptr kept = device_bytes(5000, 9), other = device_bytes(5000, 20);

    DO(cuMemsetD8, other, 0, 5000);
    DO(cuMemFree, other);
    other = device_bytes(70000, 21);
    say_device_bytes("kept", kept, 5000);
    say_device_bytes("other", other, 70000);
}
