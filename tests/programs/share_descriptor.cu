/* Memory of cuMemCreate in two processes, by file descriptors. */
#include <fcntl.h>
#include <vector>

#include "driver_calls.h"
#include "two_processes.h"

static const CUmemAllocationHandleType FD = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
static const int NR_PIECES = 3;

static CUmemAllocationProp on_device(int types)
{
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    prop.requestedHandleTypes = (CUmemAllocationHandleType)types;
    return prop;
}

static size_t granule()
{
    const CUmemAllocationProp prop = on_device(FD);
    size_t bytes = 0;
    OK(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    return bytes;
}

static CUmemGenericAllocationHandle piece_new(int types)
{
    const CUmemAllocationProp prop = on_device(types);
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate(&handle, granule(), &prop, 0));
    return handle;
}

/* Side by side, in this order. */
static int *map(const std::vector<CUmemGenericAllocationHandle> &handles)
{
    const CUmemAccessDesc both = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const size_t bytes = granule();
    CUdeviceptr base = 0;
    OK(cuMemAddressReserve(&base, handles.size() * bytes, 0, 0, 0));
    for (size_t i = 0; i < handles.size(); i++) {
        OK(cuMemMap(base + i * bytes, bytes, 0, handles[i], 0));
        OK(cuMemRelease(handles[i]));
    }
    OK(cuMemSetAccess(base, handles.size() * bytes, &both, 1));
    return (int *)base;
}

static void print_pieces(const char *what, const int *memory)
{
    const size_t nr = granule() / sizeof(int);
    std::printf("%s:", what);
    for (int i = 0; i < NR_PIECES; i++) {
        int ends[2];
        CHECK(cudaMemcpy(&ends[0], memory + i * nr, sizeof(int), cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(&ends[1], memory + (i + 1) * nr - 1, sizeof(int), cudaMemcpyDeviceToHost));
        std::printf(" %d %d", ends[0], ends[1]);
    }
    std::printf("\n");
}

static void exporter(const Other &other)
{
    CHECK(cudaFree(nullptr));
    int fd = -1;
    CUmemGenericAllocationHandle handle = piece_new(0);
    std::printf("of no type: %s\n", name(cuMemExportToShareableHandle(&fd, handle, FD, 0)));
    OK(cuMemRelease(handle));
    handle = piece_new(FD);
    std::printf("as no type: %s\n", name(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_NONE, 0)));
    std::printf("with flags: %s\n", name(cuMemExportToShareableHandle(&fd, handle, FD, 1)));
    OK(cuMemExportToShareableHandle(&fd, handle, FD, 0));
    std::printf("closed by exec: %d\n", (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CUmemGenericAllocationHandle own = 0;
    OK(cuMemImportFromShareableHandle(&own, (void *)(size_t)fd, FD));
    std::printf("imported where it is, another handle: %d\n", own != handle);
    OK(cuMemRelease(own));
    OK(cuMemRelease(handle));
    close(fd);
    std::printf("released: %s\n", name(cuMemRelease(handle)));

    std::vector<CUmemGenericAllocationHandle> handles;
    for (int i = 0; i < NR_PIECES; i++) {
        handles.push_back(piece_new(FD));
        OK(cuMemExportToShareableHandle(&fd, handles[i], FD, 0));
        other.tell(i, fd);
        close(fd);
    }
    int *memory = map(handles);
    const size_t nr = granule() / sizeof(int);
    CHECK(cudaMemset(memory, 0, NR_PIECES * granule()));
    for (int i = 0; i < NR_PIECES; i++) {
        add<<<16, 256>>>(memory + i * nr, nr, i + 1);
    }
    CHECK(cudaDeviceSynchronize());
    other.go_on();
    other.wait();
    print_pieces("after the other added", memory);
    die("dies with memory that the other has mapped");
}

static bool importer(const Other &other)
{
    CHECK(cudaFree(nullptr));
    std::vector<CUmemGenericAllocationHandle> handles(NR_PIECES);
    CUmemGenericAllocationHandle again = 0;
    int fd = -1, out = -1, pipes[2];
    for (int i = 0; i < NR_PIECES; i++) { /* the other way round */
        const int which = other.hear<int>(&fd);
        OK(cuMemImportFromShareableHandle(&handles[NR_PIECES - 1 - which], (void *)(size_t)fd, FD));
        OK(cuMemImportFromShareableHandle(&again, (void *)(size_t)fd, FD));
        std::printf("imported twice it is another: %d\n", again != handles[NR_PIECES - 1 - which]);
        OK(cuMemRelease(again));
        close(fd);
    }
    std::printf("passed on: %s\n", name(cuMemExportToShareableHandle(&out, handles[0], FD, 0)));
    std::printf("a descriptor that is closed: %s\n",
                name(cuMemImportFromShareableHandle(&again, (void *)(size_t)1000, FD)));
    if (pipe(pipes) == 0) {
        std::printf("a pipe: %s\n", name(cuMemImportFromShareableHandle(&again, (void *)(size_t)pipes[0], FD)));
    }
    other.wait();
    int *memory = map(handles);
    print_pieces("mapped", memory);
    add<<<64, 256>>>(memory, NR_PIECES * granule() / sizeof(int), 10);
    CHECK(cudaDeviceSynchronize());
    other.go_on();
    std::printf("the other is gone: %d\n", other.is_gone());
    add<<<64, 256>>>(memory, NR_PIECES * granule() / sizeof(int), 100);
    print_pieces("what it had is there", memory);
    OK(cuMemUnmap((CUdeviceptr)memory, NR_PIECES * granule()));
    OK(cuMemAddressFree((CUdeviceptr)memory, NR_PIECES * granule()));
    return true;
}

int main(int argc, char **argv)
{
    return two_processes(argc, argv, importer, exporter);
}
