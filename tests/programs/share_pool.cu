/* A memory pool in two processes: the pool by descriptor, pieces of it by what names them. */
#include "two_processes.h"

static const size_t NR = 1 << 16;
static const cudaMemAllocationHandleType FD = cudaMemHandleTypePosixFileDescriptor;

struct Pieces {
    cudaMemPoolPtrExportData first, second;
};

static void print_ends(const char *what, const int *memory)
{
    int ends[2];
    CHECK(cudaMemcpy(&ends[0], memory, sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&ends[1], memory + NR - 1, sizeof(int), cudaMemcpyDeviceToHost));
    std::printf("%s: %d %d\n", what, ends[0], ends[1]);
}

static cudaMemPool_t pool_new(cudaMemAllocationHandleType type)
{
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location = {cudaMemLocationTypeDevice, 0};
    props.handleTypes = type;
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &props));
    return pool;
}

static int *piece_new(cudaMemPool_t pool, int value)
{
    int *memory;
    CHECK(cudaMallocFromPoolAsync(&memory, NR * sizeof(int), pool, 0));
    CHECK(cudaMemsetAsync(memory, 0, NR * sizeof(int), 0));
    add<<<16, 256>>>(memory, NR, value);
    CHECK(cudaStreamSynchronize(0));
    return memory;
}

static void exporter(const Other &other)
{
    int fd = -1;
    Pieces pieces;
    cudaMemPool_t plain = pool_new(cudaMemHandleTypeNone), pool = pool_new(FD), standard;
    std::printf("of no type: %s\n", said(cudaMemPoolExportToShareableHandle(&fd, plain, FD, 0)));
    CHECK(cudaDeviceGetDefaultMemPool(&standard, 0));
    std::printf("the device's: %s\n", said(cudaMemPoolExportToShareableHandle(&fd, standard, FD, 0)));
    int *first = piece_new(pool, 1);
    std::printf("before the pool: %s\n", said(cudaMemPoolExportPointer(&pieces.first, first)));
    CHECK(cudaMemPoolExportToShareableHandle(&fd, pool, FD, 0));
    int *second = piece_new(pool, 2);
    CHECK(cudaMemPoolExportPointer(&pieces.first, first));
    CHECK(cudaMemPoolExportPointer(&pieces.second, second));
    cudaMemPoolPtrExportData other_data;
    std::printf("from within: %s\n", said(cudaMemPoolExportPointer(&other_data, first + 2)));
    void *own;
    std::printf("imported where it is: %s\n", said(cudaMemPoolImportPointer(&own, pool, &pieces.first)));
    cudaIpcMemHandle_t handle;
    std::printf("as memory of cudaMalloc: %s\n", said(cudaIpcGetMemHandle(&handle, first)));
    other.tell(pieces, fd);
    close(fd);
    other.wait();
    print_ends("after the other added", first);
    print_ends("and to the second", second);
    CHECK(cudaFreeAsync(second, 0));
    CHECK(cudaStreamSynchronize(0));
    other.go_on();
    other.wait();
    die("dies with memory that the other has open");
}

static bool importer(const Other &other)
{
    int fd = -1, out = -1, *first, *second, *more;
    Pieces pieces = other.hear<Pieces>(&fd);
    cudaMemPool_t pool, again;
    cudaMemPoolPtrExportData rubbish;
    CHECK(cudaFree(nullptr));
    std::printf("with flags: %s\n", said(cudaMemPoolImportFromShareableHandle(&pool, (void *)(size_t)fd, FD, 1)));
    CHECK(cudaMemPoolImportFromShareableHandle(&pool, (void *)(size_t)fd, FD, 0));
    CHECK(cudaMemPoolImportFromShareableHandle(&again, (void *)(size_t)fd, FD, 0));
    std::printf("imported twice it is the same: %d\n", pool == again);
    close(fd);
    CHECK(cudaMemPoolImportPointer((void **)&first, pool, &pieces.first));
    CHECK(cudaMemPoolImportPointer((void **)&second, pool, &pieces.second));
    print_ends("first", first);
    print_ends("second", second);
    std::memset(&rubbish, 0x5a, sizeof(rubbish));
    std::printf("rubbish: %s\n", said(cudaMemPoolImportPointer((void **)&more, pool, &rubbish)));
    std::printf("passed on: %s\n", said(cudaMemPoolExportPointer(&rubbish, first)));
    std::printf("the pool passed on: %s\n", said(cudaMemPoolExportToShareableHandle(&out, pool, FD, 0)));
    std::printf("allocated from: %s\n", said(cudaMallocFromPoolAsync(&more, 4096, pool, 0)));
    std::printf("the device's: %s\n", said(cudaDeviceSetMemPool(0, pool)));
    std::printf("trimmed: %s\n", said(cudaMemPoolTrimTo(pool, 0)));
    add<<<16, 256>>>(first, NR, 10);
    add<<<16, 256>>>(second, NR, 20);
    CHECK(cudaFreeAsync(second, 0));
    CHECK(cudaStreamSynchronize(0));
    other.go_on();
    other.wait();
    other.go_on();
    std::printf("the other is gone: %d\n", other.is_gone());
    add<<<16, 256>>>(first, NR, 100);
    print_ends("what it had is there", first);
    CHECK(cudaFree(first));
    CHECK(cudaMemPoolDestroy(pool));
    std::printf("after all: %s\n", said(cudaDeviceSynchronize()));
    return true;
}

int main(int argc, char **argv)
{
    return two_processes(argc, argv, importer, exporter);
}
