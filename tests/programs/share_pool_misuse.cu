/*
 * Descriptors and pieces of a memory pool that are forged, of another kind, used again and again, or whose maker lets
 * go of them first. With "foreign SOCKET" it is a program of another guest, to which one of share_pool tells a pool.
 */
#include <sys/mman.h>
#include <vector>

#include "driver_calls.h"
#include "two_processes.h"

static const size_t NR = 1 << 16;
static const int NR_TIMES = 1000;
static const CUmemAllocationHandleType FD = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

struct Pieces {
    CUmemPoolPtrExportData first, second;
};

static CUmemLocation device()
{
    return {CU_MEM_LOCATION_TYPE_DEVICE, 0};
}

static CUmemoryPool pool_new(int types)
{
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = device();
    props.handleTypes = (CUmemAllocationHandleType)types;
    CUmemoryPool pool = nullptr;
    OK(cuMemPoolCreate(&pool, &props));
    return pool;
}

static CUdeviceptr piece_new(CUmemoryPool pool, int value)
{
    CUdeviceptr memory = 0;
    OK(cuMemAllocFromPoolAsync(&memory, NR * sizeof(int), pool, nullptr));
    OK(cuMemsetD32Async(memory, value, NR, nullptr));
    return memory;
}

static const char *import(void *file)
{
    CUmemoryPool pool = nullptr;
    const CUresult result = cuMemPoolImportFromShareableHandle(&pool, file, FD, 0);
    if (result == CUDA_SUCCESS) {
        OK(cuMemPoolDestroy(pool));
    }
    return name(result);
}

static void *as_handle(int file)
{
    return (void *)(size_t)file;
}

/* What is no descriptor of a pool. */
static void other_files(int pool_file)
{
    int pipes[2], file = -1;
    const int plain = memfd_create("plain", MFD_ALLOW_SEALING);
    if (pipe(pipes) != 0 || ftruncate(plain, 4096) != 0) {
        std::exit(verdict(false));
    }
    std::printf("closed, a pipe, a file: %s %s %s\n", import(as_handle(1000)), import(as_handle(pipes[0])),
                import(as_handle(plain)));
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = device();
    prop.requestedHandleTypes = FD;
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate(&handle, 2 << 20, &prop, 0));
    OK(cuMemExportToShareableHandle(&file, handle, FD, 0));
    std::printf("of physical memory: %s\n", import(as_handle(file)));
    std::printf("of a pool, as physical memory: %s\n",
                name(cuMemImportFromShareableHandle(&handle, as_handle(pool_file), FD)));
}

/* Each bit of what names a piece, wrong: refused, or some memory that can be freed. */
static void forged(CUmemoryPool pool, const CUmemPoolPtrExportData &right)
{
    int nr_refused = 0;
    for (size_t bit = 0; bit < 8 * sizeof(right); bit++) {
        CUmemPoolPtrExportData wrong = right;
        CUdeviceptr memory = 0;
        wrong.reserved[bit / 8] ^= (unsigned char)(1 << bit % 8);
        if (cuMemPoolImportPointer(&memory, pool, &wrong) != CUDA_SUCCESS) {
            nr_refused++;
            continue;
        }
        OK(cuMemFree(memory));
    }
    std::printf("of forged ones some are refused: %d\n", nr_refused >= 64);
}

static void again_and_again(CUmemoryPool pool, CUmemPoolPtrExportData *piece)
{
    std::vector<CUdeviceptr> memory(NR_TIMES);
    for (CUdeviceptr &each : memory) {
        OK(cuMemPoolImportPointer(&each, pool, piece));
    }
    for (CUdeviceptr each : memory) {
        OK(cuMemFree(each));
    }
    std::printf("freed once more: %s\n", name(cuMemFree(memory[0])));
}

static void exporter(const Other &other)
{
    CHECK(cudaFree(nullptr));
    int fd = -1;
    Pieces pieces;
    CUmemoryPool plain = pool_new(0), pool = pool_new(FD), own = nullptr;
    std::printf("of no type: %s\n", name(cuMemPoolExportToShareableHandle(&fd, plain, FD, 0)));
    std::printf("with flags: %s\n", name(cuMemPoolExportToShareableHandle(&fd, pool, FD, 1)));
    std::printf("of another type: %s\n", name(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_NONE, 0)));
    OK(cuMemPoolExportToShareableHandle(&fd, pool, FD, 0));
    const CUdeviceptr first = piece_new(pool, 1), second = piece_new(pool, 2), unshared = piece_new(plain, 3);
    CUdeviceptr memory = 0;
    OK(cuMemPoolExportPointer(&pieces.first, first));
    OK(cuMemPoolExportPointer(&pieces.second, second));
    std::printf("of a pool that is not shared: %s\n", name(cuMemPoolExportPointer(&pieces.second, unshared)));
    unsigned long long types = 0;
    CUmemoryPool of = nullptr;
    OK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, first));
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, first));
    std::printf("types: %llu, of its pool: %d\n", types, of == pool);
    OK(cuMemPoolImportFromShareableHandle(&own, as_handle(fd), FD, 0));
    std::printf("imported where it is, another pool: %d\n", own != pool);
    OK(cuMemPoolImportPointer(&memory, own, &pieces.first));
    std::printf("... and other memory: %d\n", memory != first);
    OK(cuMemFree(memory));
    OK(cuMemPoolDestroy(own));
    other.tell(pieces, fd);
    other.wait();
    OK(cuMemFree(first)); /* which the other has open */
    OK(cuMemPoolTrimTo(pool, 0));
    OK(cuMemPoolDestroy(pool));
    OK(cuMemFree(second));
    std::printf("of a pool that is gone: %s\n", name(cuMemPoolExportToShareableHandle(&fd, pool, FD, 0)));
    std::printf("memory that is gone: %s\n", name(cuMemPoolExportPointer(&pieces.first, first)));
    other.go_on();
    other.wait();
    std::printf("after all: %s\n", name(cuCtxSynchronize()));
}

static bool importer(const Other &other)
{
    int fd = -1;
    Pieces pieces = other.hear<Pieces>(&fd);
    CHECK(cudaFree(nullptr));
    other_files(fd);
    CUmemoryPool pool = nullptr, standard = nullptr;
    CUdeviceptr first = 0, memory = 0;
    std::printf("of another type: %s\n",
                name(cuMemPoolImportFromShareableHandle(&pool, as_handle(fd), CU_MEM_HANDLE_TYPE_NONE, 0)));
    OK(cuMemPoolImportFromShareableHandle(&pool, as_handle(fd), FD, 0));
    OK(cuDeviceGetDefaultMemPool(&standard, 0));
    std::printf("of another pool: %s\n", name(cuMemPoolImportPointer(&memory, standard, &pieces.first)));
    forged(pool, pieces.first);
    again_and_again(pool, &pieces.second);
    OK(cuMemPoolImportPointer(&first, pool, &pieces.first));
    CUmemoryPool of = nullptr;
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, first));
    std::printf("of its pool: %d\n", of == pool);
    cuuint64_t value = 1;
    std::printf("set: %s\n", name(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value)));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
    std::printf("used: %llu\n", (unsigned long long)value);
    other.go_on();
    other.wait();
    std::vector<int> values(NR);
    std::printf("read what the other freed: %s\n", name(cuMemcpyDtoH(values.data(), first, NR * sizeof(int))));
    OK(cuMemPoolDestroy(pool));
    std::printf("of a pool that is gone: %s\n", name(cuMemPoolImportPointer(&memory, pool, &pieces.first)));
    OK(cuMemFreeAsync(first, nullptr));
    OK(cuCtxSynchronize());
    std::printf("freed twice: %s\n", name(cuMemFreeAsync(first, nullptr)));
    other.go_on();
    return true;
}

static int foreign(const Other &other)
{
    int fd = -1;
    cudaMemPoolPtrExportData pieces[2];
    other.hear(pieces, sizeof(pieces), &fd);
    CHECK(cudaFree(nullptr));
    std::printf("of another guest: %s\n", import(as_handle(fd)));
    return verdict(true);
}

int main(int argc, char **argv)
{
    if (argc == 3 && std::strcmp(argv[1], "foreign") == 0) {
        return foreign(Other(std::atoi(argv[2])));
    }
    return two_processes(argc, argv, importer, exporter);
}
