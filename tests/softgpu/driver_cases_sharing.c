/* Cases of memory and events that processes share: see driver_cases.c. One process says a token, the other hears it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver_cases.h"

#define BYTES (UINT64_C(32) << 20)

static const CUmemAllocationProp shareable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static void say_bytes(const void *bytes, size_t nr)
{
    for (size_t i = 0; i < nr; i++) {
        printf("%02x", ((const unsigned char *)bytes)[i]);
    }
    putchar('\n');
    fflush(stdout);
}

static void hear_bytes(void *bytes, size_t nr)
{
    unsigned int byte;

    for (size_t i = 0; i < nr; i++) {
        if (scanf("%2x", &byte) != 1) {
            exit(1);
        }
        ((unsigned char *)bytes)[i] = (unsigned char)byte;
    }
    wait_for_line();
}

/* A descriptor, and of which process; the other one opens it. */
static void say_descriptor(int fd)
{
    const int token[2] = {getpid(), fd};

    say_bytes(token, sizeof(token));
}

static int hear_descriptor(void)
{
    int token[2];
    char path[64];

    hear_bytes(token, sizeof(token));
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", token[0], token[1]);
    return open(path, O_RDWR | O_CLOEXEC);
}

static void say_state(CUdeviceptr memory)
{
    unsigned int value;
    size_t free_bytes, total_bytes;

    CHECK(cuMemcpyDtoH_v2(&value, memory + BYTES - 4, 4));
    CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    printf("value %u, used %zu MiB\n", value, (total_bytes - free_bytes) >> 20);
    fflush(stdout);
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;

    CHECK(cuMemAddressReserve(&address, BYTES, 0, 0, 0));
    CHECK(cuMemMap(address, BYTES, 0, handle, 0));
    CHECK(cuMemSetAccess(address, BYTES, &access, 1));
    CHECK(cuMemRelease(handle));
    return address;
}

static CUdeviceptr memory_new(const char *kind, CUmemoryPool *pool, int *fd)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr memory;

    if (!strcmp(kind, "memory")) {
        CHECK(cuMemAlloc_v2(&memory, BYTES));
    } else if (!strcmp(kind, "pool")) {
        CHECK(cuMemPoolCreate(pool, &properties));
        CHECK(cuMemAllocFromPoolAsync(&memory, BYTES, *pool, NULL));
    } else {
        CHECK(cuMemCreate(&handle, BYTES, &shareable, 0));
        CHECK(cuMemExportToShareableHandle(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        memory = map(handle);
    }
    return memory;
}

CUdeviceptr share_physical(void)
{
    CUdeviceptr memory;
    int fd;

    start();
    memory = memory_new("descriptor", NULL, &fd);
    say_descriptor(fd);
    return memory;
}

CUdeviceptr take_physical(void)
{
    CUmemGenericAllocationHandle physical;

    start();
    CHECK(cuMemImportFromShareableHandle(&physical, (void *)(uintptr_t)hear_descriptor(),
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    return map(physical);
}

/* Shares memory of this kind, and fills it before and after. */
int case_share(const char *kind)
{
    CUdeviceptr memory;
    CUipcMemHandle handle;
    CUmemPoolPtrExportData pointer;
    CUmemoryPool pool;
    int fd;

    start();
    memory = memory_new(kind, &pool, &fd);
    CHECK(fill(memory, 7, BYTES / 4 / 256, 256));
    CHECK(cuCtxSynchronize());
    if (!strcmp(kind, "memory")) {
        CHECK(cuIpcGetMemHandle(&handle, memory));
        say_bytes(&handle, sizeof(handle));
    } else if (!strcmp(kind, "pool")) {
        CHECK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        say_descriptor(fd);
        CHECK(cuMemPoolExportPointer(&pointer, memory));
        say_bytes(&pointer, sizeof(pointer));
    } else {
        say_descriptor(fd);
    }
    say_state(memory);
    wait_for_line();
    say_state(memory);
    CHECK(fill(memory, 9, BYTES / 4 / 256, 256));
    CHECK(cuCtxSynchronize());
    say_state(memory);
    wait_for_line();
    return 0;
}

static void let_go(const char *kind, CUdeviceptr memory)
{
    if (!strcmp(kind, "memory")) {
        CHECK(cuIpcCloseMemHandle(memory));
    } else if (!strcmp(kind, "pool")) {
        CHECK(cuMemFree_v2(memory));
    } else {
        CHECK(cuMemUnmap(memory, BYTES));
    }
}

/* Takes it, looks at it, and fills it. */
int case_take(const char *kind)
{
    CUdeviceptr memory, other;
    CUipcMemHandle handle;
    CUmemPoolPtrExportData pointer;
    CUmemGenericAllocationHandle physical;
    CUmemoryPool pool = NULL;
    size_t free_bytes, total_bytes;

    start();
    if (!strcmp(kind, "memory")) {
        hear_bytes(&handle, sizeof(handle));
        CHECK(cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    } else if (!strcmp(kind, "pool")) {
        CHECK(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)hear_descriptor(),
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        hear_bytes(&pointer, sizeof(pointer));
        CHECK(cuMemPoolImportPointer(&memory, pool, &pointer));
    } else {
        CHECK(cuMemImportFromShareableHandle(&physical, (void *)(uintptr_t)hear_descriptor(),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        memory = map(physical);
    }
    say_state(memory);
    CHECK(fill(memory, 8, BYTES / 4 / 256, 256));
    CHECK(cuCtxSynchronize());
    say_text("filled");
    wait_for_line();
    say_state(memory);
    wait_for_line(); /* who shared it is dead */
    say_state(memory);
    say("no room", cuMemAlloc_v2(&other, BYTES + 1));
    let_go(kind, memory);
    if (pool) {
        CHECK(cuMemPoolDestroy(pool));
    }
    CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    printf("used %zu MiB\n", (total_bytes - free_bytes) >> 20);
    say("room", cuMemAlloc_v2(&other, BYTES + 1));
    return 0;
}

/* A handle of another process's with each bit of it wrong, and of another device's file. */
int case_forged(const char *argument)
{
    CUipcMemHandle handle, forged;
    CUipcEventHandle event_handle;
    CUdeviceptr memory;
    CUevent event;
    unsigned int nr_other = 0, nr_refused = 0;

    (void)argument;
    start();
    hear_bytes(&handle, sizeof(handle));
    for (unsigned int bit = 0; bit < 8 * sizeof(handle); bit++) {
        CUresult result;

        forged = handle;
        ((unsigned char *)&forged)[bit / 8] ^= (unsigned char)(1u << bit % 8);
        result = cuIpcOpenMemHandle_v2(&memory, forged, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        /* Of this process, if its number is that of the other one but for a bit. */
        nr_refused += result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CONTEXT;
        nr_other +=
            result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE && result != CUDA_ERROR_INVALID_CONTEXT;
    }
    printf("refused %s, otherwise %u\n", nr_refused > 64 ? "many" : "few", nr_other);
    memcpy(&event_handle, &handle, sizeof(event_handle));
    say("as an event", cuIpcOpenEventHandle(&event, event_handle));
    say("itself", cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return works();
}

/* What names a piece of a pool, with one word after the other wrong. */
int case_forged_pool(const char *argument)
{
    const uint64_t lies[][3] = {
        /* magic, offset and bytes, as memory/pool_calls.c has them: what is added to each */
        {1, 0, 0},     {0, 1, 0}, {0, UINT64_C(1) << 40, 0},  {0, UINT64_MAX - 4095, 0},
        {0, BYTES, 0}, {0, 0, 1}, {0, 0, UINT64_MAX - BYTES}, {0, 0, 0 - BYTES},
    };
    CUmemPoolPtrExportData pointer, forged;
    CUmemoryPool pool, own;
    CUdeviceptr memory, other;

    (void)argument;
    start();
    CHECK(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)hear_descriptor(),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    hear_bytes(&pointer, sizeof(pointer));
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        uint64_t words[3];

        memcpy(words, &pointer, sizeof(words));
        forged = pointer;
        for (int k = 0; k < 3; k++) {
            words[k] += lies[i][k];
        }
        memcpy(&forged, words, sizeof(words));
        say("forged", cuMemPoolImportPointer(&memory, pool, &forged));
    }
    CHECK(cuDeviceGetDefaultMemPool(&own, 0));
    say("of another pool", cuMemPoolImportPointer(&memory, own, &pointer));
    say("itself", cuMemPoolImportPointer(&memory, pool, &pointer));
    CHECK(cuMemPoolDestroy(pool));
    say("of a pool that is gone", cuMemPoolImportPointer(&other, pool, &pointer));
    say_state(memory);
    return works();
}

struct head { /* as base/shared_file.h has it */
    uint64_t magic, kind, device[2], bytes, slot, id;
};

static void import_lie(const char *what, uint64_t file_bytes, int seals, const struct head *head)
{
    CUmemGenericAllocationHandle handle;
    int fd = memfd_create("softgpu-shared", MFD_ALLOW_SEALING);

    if (ftruncate(fd, (off_t)file_bytes) || pwrite(fd, head, sizeof(*head), 0) < 0 || fcntl(fd, F_ADD_SEALS, seals)) {
        exit(1);
    }
    say(what, cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
}

/* Files that a program made itself, with heads that lie. */
int case_lies(const char *argument)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_SEAL;
    const uint64_t all = BYTES + (2 << 20);
    CUmemGenericAllocationHandle handle;
    struct head head, lie;
    int fd;

    (void)argument;
    start();
    CHECK(cuMemCreate(&handle, BYTES, &shareable, 0));
    CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    if (pread(fd, &head, sizeof(head), 0) != sizeof(head)) {
        return 1;
    }
    import_lie("as it is", all, seals, &head);
    import_lie("may shrink", all, F_SEAL_SEAL, &head);
    import_lie("too short", all - 1, seals, &head);
    lie = head;
    lie.bytes = UINT64_MAX - (1 << 20);
    import_lie("too large", all, seals, &lie);
    lie.bytes = 4096;
    import_lie("no granule", all, seals, &lie);
    lie = head;
    lie.kind = 77;
    import_lie("of no kind", all, seals, &lie);
    lie = head;
    lie.device[1]++;
    import_lie("another device", all, seals, &lie);
    lie = head;
    lie.slot = UINT64_MAX;
    import_lie("no slot", all, seals, &lie);
    lie.slot = head.slot;
    lie.id = 0;
    import_lie("no id", all, seals, &lie);
    return works();
}

/* An event behind a kernel that runs until it is told, or for ever. */
int case_record(const char *argument)
{
    volatile unsigned int *flags;
    CUipcEventHandle handle;
    CUevent event;

    (void)argument;
    start();
    CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    CHECK(cuIpcGetEventHandle(&handle, event));
    flags = hold(NULL);
    CHECK(cuEventRecord(event, NULL));
    while (!flags[0]) {
        usleep(100);
    }
    say_bytes(&handle, sizeof(handle));
    wait_for_line();
    flags[1] = 1;
    CHECK(cuEventSynchronize(event));
    say_text("PASS");
    wait_for_line();
    return 0;
}

int case_await(const char *argument)
{
    CUipcEventHandle handle;
    CUevent event, again;
    CUstream stream;

    start();
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    hear_bytes(&handle, sizeof(handle));
    CHECK(cuIpcOpenEventHandle(&event, handle));
    say("query", cuEventQuery(event));
    CHECK(cuStreamWaitEvent(stream, event, 0));
    CHECK(cuEventCreate(&again, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventRecord(again, stream));
    say("behind", cuEventQuery(again));
    if (!strcmp(argument, "reset")) { /* a wait does not keep a context from ending */
        CHECK(cuDevicePrimaryCtxReset_v2(0));
        say_text("reset");
        return 0;
    }
    CHECK(cuEventSynchronize(event));
    CHECK(cuStreamSynchronize(stream));
    say("query", cuEventQuery(event));
    say("behind", cuEventQuery(again));
    return works();
}
