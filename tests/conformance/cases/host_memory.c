/* Pinned, mapped and registered host memory. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "case.h"

enum { BYTES = 8192 };

CASE(host_alloc_flags)
{
    static const unsigned int flags[] = {0, 1, 2, 3, 4, 5, 6, 7};

    for (unsigned int i = 0; i < 8; i++) {
        unsigned int got = 99;
        void *memory = NULL;

        say(text("alloc with flags %u", flags[i]), CU(cuMemHostAlloc)(&memory, BYTES, flags[i]));
        say(text("flags of %u", flags[i]), CU(cuMemHostGetFlags)(&got, memory));
        say_number(text("flags of %u are", flags[i]), got);
        say_number(text("page aligned %u", flags[i]), (uintptr_t)memory % 4096 == 0);
        say(text("free %u", flags[i]), CU(cuMemFreeHost)(memory));
    }
}

CASE(host_alloc_old_form)
{
    unsigned int flags = 99;
    void *memory = NULL;

    DO(cuMemAllocHost, &memory, 100);
    DO(cuMemHostGetFlags, &flags, memory);
    say_number("flags", flags);
    memset(memory, 3, 100);
    DO(cuMemFreeHost, memory);
    DO(cuMemFreeHost, memory);
}

/* Its size is what was asked for, not whole pages. */
CASE(host_alloc_size)
{
    CUdeviceptr memory = device_bytes(BYTES, 1), base = 0;
    uint8_t *pinned;
    size_t bytes = 0;

    MUST(cuMemHostAlloc, (void **)&pinned, 5000, 0);
    DO(cuMemGetAddressRange, &base, &bytes, (CUdeviceptr)(uintptr_t)pinned + 77);
    say_number("base", base == (CUdeviceptr)(uintptr_t)pinned);
    say_number("bytes", (long long)bytes);
    DO(cuPointerGetAttribute, &bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, (CUdeviceptr)(uintptr_t)pinned);
    say_number("range", (long long)bytes);
    DO(cuMemcpyDtoH, pinned, memory, 5000);
    say_bytes("copied", pinned, 5000);
    DO(cuMemcpyDtoH, pinned, memory, 5001);
    DO(cuMemFreeHost, pinned);
    DO(cuMemAllocHost, (void **)&pinned, 1);
    DO(cuMemFreeHost, pinned);
}

CASE(host_alloc_is_written_by_kernels)
{
    unsigned int *memory = NULL;
    CUdeviceptr device = 0;

    MUST(cuMemHostAlloc, (void **)&memory, BYTES, CU_MEMHOSTALLOC_DEVICEMAP);
    DO(cuMemHostGetDevicePointer, &device, memory, 0);
    say_number("same address", device == (CUdeviceptr)(uintptr_t)memory);
    say("fill", fill(device, 7, BYTES / 4, NULL));
    DO(cuCtxSynchronize);
    say_bytes("seen by the host", memory, BYTES);
    memory[5] = 1000;
    void *parameters[] = {&device, &(unsigned int){BYTES / 4}};
    say("add_one", launch("add_one", BYTES / 4 / 128, 128, NULL, parameters));
    DO(cuCtxSynchronize);
    say_bytes("after both wrote", memory, BYTES);
}

CASE(host_alloc_device_pointer_of_offsets)
{
    uint8_t *memory = NULL;
    CUdeviceptr device = 0;

    MUST(cuMemHostAlloc, (void **)&memory, BYTES, CU_MEMHOSTALLOC_DEVICEMAP);
    DO(cuMemHostGetDevicePointer, &device, memory + 100, 0);
    say_number("offset", (long long)(device - (CUdeviceptr)(uintptr_t)memory));
}

CASE(host_alloc_write_combined)
{
    uint8_t *memory = NULL;
    CUdeviceptr device = device_bytes(BYTES, 1);

    DO(cuMemHostAlloc, (void **)&memory, BYTES, CU_MEMHOSTALLOC_WRITECOMBINED);
    memset(memory, 0x42, BYTES);
    DO(cuMemcpyHtoD, device, memory, BYTES);
    say_device_bytes("device", device, BYTES);
    DO(cuMemFreeHost, memory);
}

CASE(host_alloc_sizes)
{
    static const size_t sizes[] = {1, 4095, 4097, 1 << 20, 5 << 20};

    for (unsigned int i = 0; i < 5; i++) {
        uint8_t *memory = NULL;

        say(text("alloc of %zu", sizes[i]), CU(cuMemHostAlloc)((void **)&memory, sizes[i], 0));
        memory[0] = memory[sizes[i] - 1] = 1;
        say(text("free of %zu", sizes[i]), CU(cuMemFreeHost)(memory));
    }
}

CASE(host_alloc_many)
{
    void *memory[64];

    for (unsigned int i = 0; i < 64; i++) {
        MUST(cuMemHostAlloc, &memory[i], 1000 * (i + 1), 0);
    }
    for (unsigned int i = 0; i < 64; i++) {
        memset(memory[i], (int)i, 1000 * (i + 1));
    }
    for (unsigned int i = 0; i < 64; i += 9) {
        say_bytes(text("allocation %u", i), memory[i], 1000 * (i + 1));
    }
    for (unsigned int i = 0; i < 64; i++) {
        MUST(cuMemFreeHost, memory[i]);
    }
}

CASE(host_register_and_copy)
{
    uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr device = device_bytes(BYTES, 1);
    unsigned int flags = 99;

    DO(cuMemHostRegister, memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE);
    DO(cuMemHostGetFlags, &flags, memory);
    say_number("portable", flags & CU_MEMHOSTREGISTER_PORTABLE);
    DO(cuMemcpyDtoHAsync, memory, device, BYTES, NULL);
    DO(cuStreamSynchronize, NULL);
    say_bytes("copied", memory, BYTES);
    DO(cuMemHostRegister, memory, BYTES, 0);
    DO(cuMemHostRegister, memory + 4096, 4096, 0);
    DO(cuMemHostUnregister, memory);
    DO(cuMemHostUnregister, memory);
    munmap(memory, BYTES);
}

CASE(host_register_mapped)
{
    uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr device = 0, part = 0, own = device_bytes(BYTES, 1);

    for (size_t i = 0; i < BYTES; i++) {
        memory[i] = (uint8_t)i;
    }
    DO(cuMemHostRegister, memory, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP);
    if (DO(cuMemHostGetDevicePointer, &device, memory, 0) != CUDA_SUCCESS) {
        return;
    }
    DO(cuMemHostGetDevicePointer, &part, memory + 100, 0);
    say_number("offset", (long long)(part - device));
    say_bytes("untouched", memory, BYTES);
    say("fill", fill(device, 7, 1000, NULL));
    DO(cuStreamSynchronize, NULL);
    say_bytes("filled", memory, BYTES);
    memory[5] = 99;
    DO(cuMemcpyDtoD, own, device, BYTES);
    say_device_bytes("as the device has it", own, BYTES);
    DO(cuMemcpyDtoH, memory, own + 64, BYTES - 64);
    say_bytes("copied back", memory, BYTES);
    DO(cuMemHostUnregister, memory);
    say_bytes("afterwards", memory, BYTES);
    memory[5] = 1;
    DO(cuMemHostUnregister, memory);
    DO(cuMemHostRegister, memory, BYTES, 0);
    DO(cuMemHostGetDevicePointer, &device, memory, 0);
    say("fill", fill(device, 8, 1000, NULL));
    DO(cuMemHostUnregister, memory);
    say_bytes("filled again", memory, BYTES);
    munmap(memory, BYTES);
}

/* What the device has written there when it comes to the copy is what is copied. */
CASE(host_register_mapped_and_copied_in_order)
{
    uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr device = 0, own = device_bytes(BYTES, 1);
    CUstream stream;
    struct held held;

    MUST(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    MUST(cuMemHostRegister, memory, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP);
    MUST(cuMemHostGetDevicePointer, &device, memory, 0);
    held = hold(stream);
    say("fill", fill(device, 7, BYTES / 4, stream));
    DO(cuMemcpyHtoDAsync, own, memory, BYTES, stream);
    DO(cuMemcpyDtoHAsync, memory + 100, own + 200, 1000, stream);
    DO(cuStreamQuery, stream);
    let_go(held);
    DO(cuStreamSynchronize, stream);
    say_device_bytes("copied", own, BYTES);
    say_bytes("and back", memory, BYTES);
    DO(cuMemHostUnregister, memory);
    munmap(memory, BYTES);
}

/* What was written there while it was registered. */
static void register_shared(uint8_t *memory)
{
    CUdeviceptr device = 0, told = 0;

    memset(memory, 5, BYTES);
    MUST(cuMemHostRegister, memory, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP);
    MUST(cuMemHostGetDevicePointer, &device, memory, 0);
    DO(cuPointerGetAttribute, &told, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, (CUdeviceptr)(uintptr_t)(memory + 9));
    say_number("told is asked", told == device + 9);
    say("fill", fill(device, 7, BYTES / 8, NULL));
    DO(cuStreamSynchronize, NULL);
    memory[BYTES - 1] = 6;
    DO(cuMemHostUnregister, memory);
    say_bytes("afterwards", memory, BYTES);
}

CASE(host_register_mapped_and_shared)
{
    uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    register_shared(memory);
    if (fork() == 0) {
        memory[BYTES - 2] = 8;
        _exit(0);
    }
    wait(NULL);
    say_number("by the child", memory[BYTES - 2]);
    munmap(memory, BYTES);
}

CASE(host_register_mapped_file)
{
    FILE *file = tmpfile();
    uint8_t read_back[BYTES];

    if (!file || ftruncate(fileno(file), BYTES) != 0) {
        end_case("no file");
    }
    uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    register_shared(memory);
    say_number("in the file", pread(fileno(file), read_back, BYTES, 0));
    say_bytes("that is", read_back, BYTES);
    munmap(memory, BYTES);
    fclose(file);
}

/* A file that the program may only read. */
CASE(host_register_mapped_and_read)
{
    FILE *file = tmpfile();
    uint8_t bytes[4096];
    char name[64];

    memset(bytes, 3, sizeof(bytes));
    if (!file || write(fileno(file), bytes, sizeof(bytes)) != sizeof(bytes)) {
        end_case("no file");
    }
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fileno(file));
    const int only = open(name, O_RDONLY);
    uint8_t *memory = mmap(NULL, sizeof(bytes), PROT_READ, MAP_SHARED, only, 0);
    CUdeviceptr device = 0, own = device_bytes(4096, 0);

    DO(cuMemHostRegister, memory, 4096, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY);
    if (DO(cuMemHostGetDevicePointer, &device, memory, 0) == CUDA_SUCCESS) {
        DO(cuMemcpyDtoD, own, device, 4096);
        say_device_bytes("seen by the device", own, 4096);
    }
    DO(cuMemHostUnregister, memory);
    say_bytes("afterwards", memory, 4096);
    munmap(memory, 4096);
    close(only);
    fclose(file);
}

/* In pages that hold more than it. */
CASE(host_register_mapped_in_part)
{
    enum { BEFORE = 5004, PART = 6000, ALL = 20000 };
    uint8_t *memory = malloc(ALL);
    CUdeviceptr device = 0;

    for (size_t i = 0; i < ALL; i++) {
        memory[i] = (uint8_t)(i * 3);
    }
    for (unsigned int round = 0; round < 2; round++) {
        DO(cuMemHostRegister, memory + BEFORE, PART, 0);
        if (DO(cuMemHostGetDevicePointer, &device, memory + BEFORE + 400, 0) != CUDA_SUCCESS) {
            return;
        }
        say("fill", fill(device, 7 + round, 1000, NULL));
        memory[BEFORE - 1] = 77;
        DO(cuStreamSynchronize, NULL);
        say_bytes("filled", memory, ALL);
        memory[BEFORE + PART] = 78;
        DO(cuMemHostUnregister, memory + BEFORE);
        say_bytes("afterwards", memory, ALL);
    }
    memory = realloc(memory, (size_t)ALL * 50);
    say_bytes("moved", memory, ALL);
    free(memory);
}

/* Of the stack that the caller stands on. */
CASE(host_register_mapped_on_the_stack)
{
    unsigned int words[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    CUdeviceptr device = 0;

    for (unsigned int round = 0; round < 3; round++) {
        DO(cuMemHostRegister, words, sizeof(words), CU_MEMHOSTREGISTER_DEVICEMAP);
        if (DO(cuMemHostGetDevicePointer, &device, words, 0) != CUDA_SUCCESS) {
            return;
        }
        say("fill", fill(device + 8, 100 + round, 3, NULL));
        DO(cuStreamSynchronize, NULL);
        say_bytes("filled", words, sizeof(words));
        words[0] += 10;
        DO(cuMemHostUnregister, words);
        say_bytes("afterwards", words, sizeof(words));
    }
}

ALONE(host_register_mapped_when_the_context_goes)
{
    uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr device = 0;
    CUcontext context = NULL;

    MUST(cuCtxCreate, &context, NULL, 0, 0);
    memset(memory, 3, BYTES);
    MUST(cuMemHostRegister, memory, BYTES, 0);
    DO(cuMemHostGetDevicePointer, &device, memory, 0);
    DO(cuMemsetD8, device, 4, 100);
    DO(cuCtxSynchronize);
    DO(cuCtxDestroy, context);
    say_bytes("still there", memory, BYTES);
    memory[0] = 9;
    say_bytes("and the program's", memory, BYTES);
    munmap(memory, BYTES);
}

CASE(host_register_unaligned)
{
    uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    DO(cuMemHostRegister, memory + 100, 1000, 0);
    DO(cuMemHostUnregister, memory);
    DO(cuMemHostUnregister, memory + 100);
    munmap(memory, BYTES);
}

CASE(host_free_of_what_was_registered)
{
    uint8_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *pinned;

    MUST(cuMemHostRegister, memory, BYTES, 0);
    DO(cuMemFreeHost, memory);
    DO(cuMemHostUnregister, memory);
    MUST(cuMemHostAlloc, &pinned, BYTES, 0);
    DO(cuMemHostUnregister, pinned);
    DO(cuMemFreeHost, (uint8_t *)pinned + 100);
    DO(cuMemFree, (CUdeviceptr)(uintptr_t)pinned);
    DO(cuMemFreeHost, pinned);
    munmap(memory, BYTES);
}
