/* Cases of addresses and physical memory: see driver_cases.c. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "driver_cases.h"
#include "softgpu/driver/kernel_abi.h"

#define UNIT      (UINT64_C(2) << 20)
#define TEBIBYTE  (UINT64_C(1) << 40)
#define NR_PIECES 4000u

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemAccessDesc read_and_write = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static long page_tables_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");

    while (status && fgets(line, sizeof(line), status)) {
        sscanf(line, "VmPTE: %ld", &kib);
    }
    fclose(status);
    return kib;
}

static void reserve(const char *what, uint64_t bytes, uint64_t wanted)
{
    CUdeviceptr at = 0;
    CUresult result = cuMemAddressReserve(&at, bytes, 0, wanted, 0);

    printf("%s %s\n", what, result ? "refused" : at == wanted ? "as asked" : "elsewhere");
}

/* Reservations of a TiB where they were asked for; what it costs, and who still finds room. */
int case_addresses(const char *argument)
{
    long before;
    void *pinned;

    (void)argument;
    start();
    before = page_tables_kib();
    reserve("in reach", TEBIBYTE, UINT64_C(0x6a0000000000));
    reserve("before pinned memory", TEBIBYTE, UINT64_C(0x6c0010000000));
    reserve("out of reach", TEBIBYTE, UINT64_C(0x300000000000));
    reserve("taken", UNIT, UINT64_C(0x6a0000000000) + 2 * UNIT);
    reserve("beside", UNIT, UINT64_C(0x6a0000000000) - UNIT);
    reserve("misaligned", UNIT, UINT64_C(0x690000001000));
    reserve("the program's", UNIT, (uintptr_t)&before / UNIT * UNIT);
    reserve("no address", UNIT, UINT64_C(1) << 63);
    printf("page tables %s\n", page_tables_kib() - before <= 64 ? "stay" : "grow");
    CHECK(cuMemAllocHost_v2(&pinned, 512 << 20));
    printf("pinned memory %s\n", (uintptr_t)pinned - SGP_REACH_ADDRESS < SGP_REACH_BYTES ? "in reach" : "out of reach");
    return works();
}

static size_t used_mib(void)
{
    size_t free_bytes, total_bytes;

    CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    return (total_bytes - free_bytes) >> 20;
}

/* Thousands of pieces of physical memory in one reservation, with few descriptors. */
int case_pieces(const char *argument)
{
    static CUmemGenericAllocationHandle handles[NR_PIECES];
    const struct rlimit few = {64, 64};
    unsigned int host[2];
    CUdeviceptr base, elsewhere;

    (void)argument;
    setrlimit(RLIMIT_NOFILE, &few);
    start();
    CHECK(cuMemAddressReserve(&base, TEBIBYTE, 0, 0, 0));
    for (unsigned int i = 0; i < NR_PIECES; i++) {
        CHECK(cuMemCreate(&handles[i], UNIT, &on_device, 0));
        CHECK(cuMemMap(base + i * UNIT, UNIT, 0, handles[i], 0));
    }
    CHECK(cuMemSetAccess(base, NR_PIECES * UNIT, &read_and_write, 1));
    printf("used %zu MiB\n", used_mib());
    CHECK(cuMemsetD32_v2(base, 7, UNIT / 4));
    CHECK(fill(base + 1999 * UNIT, 1999, (unsigned int)(2 * UNIT / 4 / 256), 256));
    CHECK(cuMemcpyDtoH_v2(host, base + 2000 * UNIT - 4, sizeof(host)));
    printf("across a border %u %u\n", host[0], host[1]);
    CHECK(cuMemUnmap(base, NR_PIECES * UNIT));
    CHECK(cuMemAddressReserve(&elsewhere, UNIT, 0, 0, 0));
    CHECK(cuMemMap(elsewhere, UNIT, 0, handles[0], 0));
    CHECK(cuMemSetAccess(elsewhere, UNIT, &read_and_write, 1));
    CHECK(cuMemcpyDtoH_v2(host, elsewhere, 4));
    printf("moved %u\n", host[0]);
    for (unsigned int i = 0; i < NR_PIECES; i++) {
        CHECK(cuMemRelease(handles[i]));
    }
    printf("used %zu MiB\n", used_mib());
    CHECK(cuMemUnmap(elsewhere, UNIT));
    printf("used %zu MiB\n", used_mib());
    CHECK(cuMemCreate(&handles[0], UNIT, &on_device, 0));
    CHECK(cuMemMap(elsewhere, UNIT, 0, handles[0], 0));
    CHECK(cuMemSetAccess(elsewhere, UNIT, &read_and_write, 1));
    CHECK(cuMemcpyDtoH_v2(host, elsewhere, 4));
    printf("new %u\n", host[0]);
    return works();
}

/* What an H100 refuses. */
int case_physical(const char *argument)
{
    CUmemGenericAllocationHandle handle, other;
    CUdeviceptr base;

    (void)argument;
    start();
    say("no granule", cuMemCreate(&handle, 4096, &on_device, 0));
    say("a part of one", cuMemCreate(&handle, UNIT + UNIT / 2, &on_device, 0));
    CHECK(cuMemCreate(&handle, 2 * UNIT, &on_device, 0));
    CHECK(cuMemAddressReserve(&base, 8 * UNIT, 0, 0, 0));
    say("a part of the memory", cuMemMap(base, UNIT, 0, handle, 0));
    say("from its middle", cuMemMap(base, UNIT, UNIT, handle, 0));
    CHECK(cuMemMap(base, 2 * UNIT, 0, handle, 0));
    say("over it", cuMemMap(base + UNIT, 2 * UNIT, 0, handle, 0));
    CHECK(cuMemMap(base + 2 * UNIT, 2 * UNIT, 0, handle, 0));
    CHECK(cuMemRelease(handle));
    say("released", cuMemRelease(handle));
    printf("used %zu MiB\n", used_mib());
    say("too much", cuMemCreate(&other, 32 * UNIT, &on_device, 0));
    printf("used %zu MiB\n", used_mib());
    CHECK(cuMemCreate(&other, 30 * UNIT, &on_device, 0));
    say("full", cuMemAlloc_v2(&base, 1));
    return 0;
}

/* The child of this process: where kernels run behind the wall. 0: none. */
static int kernels_process(void)
{
    DIR *processes = opendir("/proc");
    const struct dirent *entry;
    int found = 0;

    while (processes && (entry = readdir(processes))) {
        char path[300];
        int parent = 0;
        FILE *stat;

        snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
        stat = atoi(entry->d_name) ? fopen(path, "r") : NULL;
        if (stat && fscanf(stat, "%*d (%*[^)]) %*c %d", &parent) == 1 && parent == getpid()) {
            found = atoi(entry->d_name);
        }
        if (stat) {
            fclose(stat);
        }
    }
    closedir(processes);
    return found;
}

static void place(CUdeviceptr address, CUmemGenericAllocationHandle handle)
{
    CHECK(cuMemMap(address, UNIT, 0, handle, 0));
    CHECK(cuMemSetAccess(address, UNIT, &read_and_write, 1));
}

/* Between launches pieces come, go and take each other's places: the kernels' process sees that, and stays. */
int case_remap(const char *argument)
{
    CUmemGenericAllocationHandle handles[4], fresh;
    unsigned int values[4];
    CUdeviceptr base;
    int process;

    start();
    CHECK(cuMemAddressReserve(&base, TEBIBYTE, 0, UINT64_C(0x6a0000000000), 0));
    for (unsigned int i = 0; i < 4; i++) {
        CHECK(cuMemCreate(&handles[i], UNIT, &on_device, 0));
        place(base + i * UNIT, handles[i]);
    }
    CHECK(fill(base, 1, 1, 4));
    CHECK(cuCtxSynchronize());
    process = kernels_process();
    for (unsigned int round = 0; round < 20; round++) {
        CHECK(cuMemUnmap(base, 4 * UNIT));
        for (unsigned int i = 0; i < 4; i++) { /* each one place further */
            place(base + i * UNIT, handles[(i + round) % 4]);
        }
        CHECK(fill(base, 100 + round, 1, 4)); /* to handle `round` */
        CHECK(cuMemcpyDtoH_v2(&values[round % 4], base, 4));
        CHECK(cuMemCreate(&fresh, UNIT, &on_device, 0));
        place(base + 5 * UNIT, fresh);
        CHECK(cuMemRelease(fresh));
        CHECK(fill(base + 5 * UNIT, 9, 1, 4));
        CHECK(cuCtxSynchronize());
        CHECK(cuMemUnmap(base + 5 * UNIT, UNIT));
    }
    for (unsigned int i = 0; i < 4; i++) { /* where they lie after the last round */
        CHECK(cuMemcpyDtoH_v2(&values[(i + 19) % 4], base + i * UNIT, 4));
    }
    printf("values %u %u %u %u\n", values[0], values[1], values[2], values[3]);
    printf("%s process\n", process == kernels_process() ? "the same" : "another");
    CHECK(cuMemCreate(&fresh, UNIT, &on_device, 0));
    place(base + 5 * UNIT, fresh);
    CHECK(cuMemcpyDtoH_v2(values, base + 5 * UNIT, 4));
    printf("a used place holds %u\n", values[0]);
    for (unsigned int i = 0; i < 200; i++) { /* more than is kept */
        CHECK(cuMemSetAccess(base, UNIT, &read_and_write, 1));
    }
    CHECK(fill(base, 5, 1, 4));
    CHECK(cuMemcpyDtoH_v2(values, base, 4));
    printf("after many changes %u\n", values[0]);
    if (!strcmp(argument, "unmapped")) {
        CHECK(cuMemUnmap(base, UNIT));
    }
    CHECK(fill(base, 6, 1, 4));
    say("last", cuCtxSynchronize());
    return 0;
}

/* Memory of the program's own at addresses that it reserved, in place of physical memory: as an H100 has it, it can be
 * registered there, is the device's at the same address, and gives the addresses back. */
int case_registered_in_a_reservation(const char *argument)
{
    const int file = memfd_create("pages", 0);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base, pointer = 0;
    unsigned int *pages, value;

    (void)argument;
    start();
    ftruncate(file, UNIT);
    CHECK(cuMemAddressReserve(&base, 2 * UNIT, 0, 0, 0));
    CHECK(cuMemCreate(&handle, UNIT, &on_device, 0));
    place(base, handle);
    CHECK(fill(base, 3, UNIT / 4 / 256, 256));
    CHECK(cuCtxSynchronize());
    say("what is mapped", cuMemHostRegister_v2((void *)(uintptr_t)base, UNIT, CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK(cuMemUnmap(base, UNIT));
    say("what has nothing", cuMemHostRegister_v2((void *)(uintptr_t)base, UNIT, CU_MEMHOSTREGISTER_DEVICEMAP));
    pages = mmap((void *)(uintptr_t)base, UNIT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    say("more than there is", cuMemHostRegister_v2(pages, UNIT + 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK(cuMemHostRegister_v2(pages, UNIT, CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer_v2(&pointer, pages, 0));
    printf("%s address\n", pointer == base ? "the same" : "another");
    say("over it", cuMemMap(base, UNIT, 0, handle, 0));
    say("under it", cuMemAddressFree(base, 2 * UNIT));
    CHECK(fill(base, 5, UNIT / 4 / 256, 256));
    CHECK(cuCtxSynchronize());
    printf("filled %u %u\n", pages[0], pages[UNIT / 4 - 1]);
    CHECK(cuMemsetD32_v2(base, 6, 1));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH_v2(&value, base, 4));
    printf("set %u %u\n", pages[0], value);
    CHECK(cuMemHostUnregister(pages));
    mmap(pages, UNIT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    place(base, handle);
    CHECK(cuMemcpyDtoH_v2(&value, base, 4));
    printf("as before %u\n", value);
    CHECK(fill(base, 9, UNIT / 4 / 256, 256));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemUnmap(base, UNIT));
    CHECK(cuMemAddressFree(base, 2 * UNIT));
    return works();
}

/* Addresses that are reserved between launches, wherever there is room: what kernels need themselves lies elsewhere. */
int case_reserve(const char *argument)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr addresses[8];
    unsigned int value;

    (void)argument;
    start();
    for (unsigned int i = 0; i < 8; i++) {
        CHECK(cuMemAddressReserve(&addresses[i], 8 * UNIT, 0, 0, 0));
        CHECK(cuMemCreate(&handle, 8 * UNIT, &on_device, 0));
        CHECK(cuMemMap(addresses[i], 8 * UNIT, 0, handle, 0));
        CHECK(cuMemSetAccess(addresses[i], 8 * UNIT, &read_and_write, 1));
        CHECK(fill(addresses[i], i, (unsigned int)(8 * UNIT / 4 / 256), 256));
        CHECK(cuCtxSynchronize());
    }
    for (unsigned int i = 0; i < 8; i++) {
        CHECK(cuMemcpyDtoH_v2(&value, addresses[i], 4));
        printf("%u ", value);
    }
    printf("\n");
    return 0;
}

static CUresult array_new(void)
{
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        .Width = 1024, .Height = 1024, .NumChannels = 4, .Format = CU_AD_FORMAT_FLOAT};
    CUarray array;

    return cuArray3DCreate_v2(&array, &descriptor);
}

/* All kinds of memory count, and have what pools keep before there is none. */
int case_kinds(const char *argument)
{
    CUmemoryPool pool;
    cuuint64_t threshold = UINT64_MAX;
    CUdeviceptr pooled, made;
    CUmemGenericAllocationHandle handle;
    CUresult result;

    start();
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CHECK(cuMemAllocAsync(&pooled, 56 << 20, NULL));
    printf("used %zu MiB\n", used_mib());
    CHECK(cuMemFreeAsync(pooled, NULL));
    CHECK(cuStreamSynchronize(NULL));
    printf("kept %zu MiB\n", used_mib());
    result = !strcmp(argument, "array")     ? array_new()
             : !strcmp(argument, "managed") ? cuMemAllocManaged(&made, 16 << 20, CU_MEM_ATTACH_GLOBAL)
             : !strcmp(argument, "create")  ? cuMemCreate(&handle, 16 << 20, &on_device, 0)
                                            : cuMemAlloc_v2(&made, 16 << 20);
    say(argument, result);
    printf("used %zu MiB\n", used_mib());
    return 0;
}
