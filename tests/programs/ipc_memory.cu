/* Memory of cudaMalloc in two processes: both compute with it, one dies, the other goes on. */
#include <vector>

#include "two_processes.h"

static const size_t NR = 1 << 20;

struct Handles {
    cudaIpcMemHandle_t large, small;
};

/* All values are this one, or "differ". */
static std::string values_of(const int *memory, size_t nr)
{
    std::vector<int> host(nr);
    CHECK(cudaMemcpy(host.data(), memory, nr * sizeof(int), cudaMemcpyDeviceToHost));
    for (int value : host) {
        if (value != host[0]) {
            return "differ";
        }
    }
    return std::to_string(host[0]);
}

static void exporter(const Other &other)
{
    int *large, *small, *managed;
    Handles handles, inner;
    CHECK(cudaMalloc(&large, NR * sizeof(int)));
    CHECK(cudaMalloc(&small, 1000));
    CHECK(cudaMemset(large, 0, NR * sizeof(int)));
    CHECK(cudaMemset(small, 0, 1000));
    add<<<64, 256>>>(large, NR, 7);
    CHECK(cudaIpcGetMemHandle(&handles.large, large));
    CHECK(cudaIpcGetMemHandle(&handles.small, small));
    CHECK(cudaIpcGetMemHandle(&inner.large, large + 4));
    std::printf("the same handle from within: %d\n", std::memcmp(&handles.large, &inner.large, 64) == 0);
    void *own;
    std::printf("opened where it is: %s\n",
                said(cudaIpcOpenMemHandle(&own, handles.large, cudaIpcMemLazyEnablePeerAccess)));
    CHECK(cudaMallocManaged(&managed, 4096));
    std::printf("managed memory: %s\n", said(cudaIpcGetMemHandle(&inner.large, managed)));
    std::printf("the host's: %s\n", said(cudaIpcGetMemHandle(&inner.large, &inner)));
    add<<<64, 256>>>(large, NR, 1);
    CHECK(cudaDeviceSynchronize());
    other.tell(handles);
    other.wait();
    std::printf("after the other added: %s\n", values_of(large, NR).c_str());
    std::printf("and to the small one: %s\n", values_of(small, 250).c_str());
    add<<<64, 256>>>(large, NR, 100);
    CHECK(cudaDeviceSynchronize());
    other.go_on();
    other.wait();
    die("dies with memory that the other has open");
}

static bool importer(const Other &other)
{
    const Handles handles = other.hear<Handles>();
    int *large, *again, *small;
    Handles own;
    std::printf("without the flag: %s\n", said(cudaIpcOpenMemHandle((void **)&large, handles.large, 0)));
    CHECK(cudaIpcOpenMemHandle((void **)&large, handles.large, cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaIpcOpenMemHandle((void **)&again, handles.large, cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaIpcOpenMemHandle((void **)&small, handles.small, cudaIpcMemLazyEnablePeerAccess));
    std::printf("opened twice it is the same: %d\n", large == again);
    std::printf("values: %s %s\n", values_of(large, NR).c_str(), values_of(small, 250).c_str());
    std::printf("passed on: %s\n", said(cudaIpcGetMemHandle(&own.large, large)));
    std::printf("freed: %s\n", said(cudaFree(large)));
    std::printf("closed in its middle: %s\n", said(cudaIpcCloseMemHandle(large + 4)));
    std::memset(&own, 0, sizeof(own));
    void *nothing;
    std::printf("zeros: %s\n", said(cudaIpcOpenMemHandle(&nothing, own.large, cudaIpcMemLazyEnablePeerAccess)));
    std::memset(&own, 0x5a, sizeof(own));
    std::printf("rubbish: %s\n", said(cudaIpcOpenMemHandle(&nothing, own.large, cudaIpcMemLazyEnablePeerAccess)));
    add<<<64, 256>>>(large, NR, 10);
    add<<<1, 32>>>(small, 250, 3);
    CHECK(cudaDeviceSynchronize());
    other.go_on();
    other.wait();
    std::printf("after the other added: %s\n", values_of(large, NR).c_str());
    CHECK(cudaIpcCloseMemHandle(again));
    CHECK(cudaIpcCloseMemHandle(small));
    std::printf("closed once too often: %s\n", said(cudaIpcCloseMemHandle(small)));
    other.go_on();
    std::printf("the other is gone: %d\n", other.is_gone());
    add<<<64, 256>>>(large, NR, 1000);
    std::printf("what it had is there: %s\n", values_of(large, NR).c_str());
    CHECK(cudaIpcCloseMemHandle(large));
    std::printf("after all: %s\n", said(cudaDeviceSynchronize()));
    return true;
}

int main(int argc, char **argv)
{
    return two_processes(argc, argv, importer, exporter);
}
