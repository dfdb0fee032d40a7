/* What a pointer is. */
#include <sys/mman.h>

#include "case.h"

static void attributes_of(const char *what, CUdeviceptr pointer)
{
    unsigned int memory_type = 99, is_managed = 99, ordinal = 99;
    CUdeviceptr device = 1, start = pointer;
    CUcontext context = NULL, current = NULL;
    size_t size = 1;
    void *host = (void *)1;

    CU(cuCtxGetCurrent)(&current);
    say(text("%s, memory type", what),
        CU(cuPointerGetAttribute)(&memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
    say_number(text("%s, memory type is", what), memory_type);
    say(text("%s, context", what), CU(cuPointerGetAttribute)(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer));
    say_number(text("%s, context is the current one", what), context == current);
    say(text("%s, device pointer", what),
        CU(cuPointerGetAttribute)(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pointer));
    say_number(text("%s, device pointer is the same", what), device == pointer);
    say(text("%s, host pointer", what), CU(cuPointerGetAttribute)(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, pointer));
    say_number(text("%s, host pointer is the same", what), (CUdeviceptr)(uintptr_t)host == pointer);
    say(text("%s, managed", what), CU(cuPointerGetAttribute)(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer));
    say_number(text("%s, managed is", what), is_managed & 0xff);
    say(text("%s, ordinal", what), CU(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer));
    say_number(text("%s, ordinal is", what), ordinal);
    say(text("%s, start", what), CU(cuPointerGetAttribute)(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, pointer));
    say_number(text("%s, start is at", what), (long long)(pointer - start));
    say(text("%s, size", what), CU(cuPointerGetAttribute)(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, pointer));
    say_number(text("%s, size is", what), (long long)size);
}

CASE(pointer_of_the_device)
{
    CUdeviceptr memory = device_bytes(4096, 1);

    attributes_of("first byte", memory);
    attributes_of("inside", memory + 1000);
}

CASE(pointer_pinned)
{
    uint8_t *memory;

    MUST(cuMemHostAlloc, (void **)&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP);
    attributes_of("pinned", (CUdeviceptr)(uintptr_t)memory);
    attributes_of("pinned, inside", (CUdeviceptr)(uintptr_t)memory + 100);
}

CASE(pointer_pageable)
{
    int local = 0;

    attributes_of("stack", (CUdeviceptr)(uintptr_t)&local);
    attributes_of("null", 0);
}

CASE(pointer_freed)
{
    CUdeviceptr memory = device_bytes(4096, 1);

    MUST(cuMemFree, memory);
    attributes_of("freed", memory);
}

CASE(pointer_registered)
{
    uint8_t *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    MUST(cuMemHostRegister, memory, 8192, CU_MEMHOSTREGISTER_PORTABLE);
    attributes_of("registered", (CUdeviceptr)(uintptr_t)memory);
    MUST(cuMemHostUnregister, memory);
    munmap(memory, 8192);
}

CASE(pointer_other_attributes)
{
    CUdeviceptr memory = device_bytes(4096, 1);

    for (int attribute = CU_POINTER_ATTRIBUTE_P2P_TOKENS; attribute <= 24; attribute++) {
        unsigned long long value[8] = {0};
        CUresult result;

        if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID) {
            continue;
        }
        result = CU(cuPointerGetAttribute)(value, (CUpointer_attribute)attribute, memory);
        say(text("attribute %d", attribute), result);
    }
    unsigned long long first = 0, second = 0, other = 0;
    DO(cuPointerGetAttribute, &first, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory);
    MUST(cuPointerGetAttribute, &second, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory + 5);
    MUST(cuPointerGetAttribute, &other, CU_POINTER_ATTRIBUTE_BUFFER_ID, device_bytes(10, 1));
    say_number("one id for one buffer", first == second && first != 0);
    say_number("another for another", first != other);
}

CASE(pointer_several_at_once)
{
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    unsigned int type = 9, managed = 9, ordinal = 9;
    size_t size = 9;
    void *data[] = {&type, &size, &managed, &ordinal};
    int local;

    DO(cuPointerGetAttributes, 4, which, data, device_bytes(4096, 1));
    printf("values: %u %zu %u %u\n", type, size, managed & 0xff, ordinal);
    type = managed = ordinal = 9;
    DO(cuPointerGetAttributes, 4, which, data, (CUdeviceptr)(uintptr_t)&local);
    printf("values of a local: %u %zu %u %d\n", type, size, managed & 0xff, (int)ordinal);
}

CASE(pointer_set_sync_memops)
{
    CUdeviceptr memory = device_bytes(4096, 1);
    unsigned int yes = 1, got = 9;

    DO(cuPointerSetAttribute, &yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory);
    DO(cuPointerGetAttribute, &got, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory);
    say_number("set", got & 0xff);
    DO(cuPointerSetAttribute, &yes, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory);
}
