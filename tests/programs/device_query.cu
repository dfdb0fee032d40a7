/*
 * What the devices say of themselves. The facts differ between devices, so the output is compared between runs on one
 * device only.
 */
#include "check.h"

static void print_uuid(const cudaUUID_t &uuid)
{
    std::printf("  uuid ");
    for (char byte : uuid.bytes) {
        std::printf("%02x", (unsigned char)byte);
    }
    std::printf("\n");
}

int main()
{
    int nr_devices = 0, driver = 0, runtime = 0;
    CHECK(cudaGetDeviceCount(&nr_devices));
    CHECK(cudaDriverGetVersion(&driver));
    CHECK(cudaRuntimeGetVersion(&runtime));
    std::printf("%d device(s), driver %d, runtime %d\n", nr_devices, driver, runtime);
    bool is_right = nr_devices > 0 && driver > 0;
    for (int device = 0; device < nr_devices; device++) {
        cudaDeviceProp properties;
        CHECK(cudaSetDevice(device));
        CHECK(cudaGetDeviceProperties(&properties, device));
        char pci[32];
        CHECK(cudaDeviceGetPCIBusId(pci, sizeof(pci), device));
        int by_pci = -1, warp = 0;
        CHECK(cudaDeviceGetByPCIBusId(&by_pci, pci));
        CHECK(cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, device));
        std::printf("device %d: %s\n  capability %d.%d\n", device, properties.name, properties.major, properties.minor);
        print_uuid(properties.uuid);
        std::printf("  pci %s\n  global memory %zu bytes\n", pci, properties.totalGlobalMem);
        std::printf("  multiprocessors %d, warp %d\n", properties.multiProcessorCount, properties.warpSize);
        std::printf("  shared memory per block %zu bytes, registers per block %d\n", properties.sharedMemPerBlock,
                    properties.regsPerBlock);
        std::printf("  threads per block %d (%d x %d x %d)\n", properties.maxThreadsPerBlock,
                    properties.maxThreadsDim[0], properties.maxThreadsDim[1], properties.maxThreadsDim[2]);
        std::printf("  grid %d x %d x %d\n", properties.maxGridSize[0], properties.maxGridSize[1],
                    properties.maxGridSize[2]);
        std::printf("  unified addressing %d, copy engines %d, concurrent kernels %d\n", properties.unifiedAddressing,
                    properties.asyncEngineCount, properties.concurrentKernels);
        size_t free_bytes = 0, total_bytes = 0;
        CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
        is_right = is_right && by_pci == device && warp == properties.warpSize && warp == 32 && properties.major > 0 &&
                   properties.maxThreadsPerBlock >= 512 && free_bytes <= total_bytes && total_bytes > 0 &&
                   total_bytes <= properties.totalGlobalMem;
    }
    return verdict(is_right);
}
