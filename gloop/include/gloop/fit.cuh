/* How many blocks of a kernel are on the device at once; if none, because of which resource. */
#pragma once

#include <algorithm>
#include <stdint.h>

#include "memory.cuh"

namespace gloop::detail
{
struct Fit {
    unsigned nr_blocks;
    size_t shared_bytes; /* of a block, the kernel's own and what the launch adds */
};

inline int attribute_of(cudaDeviceAttr attribute, int device)
{
    int value = 0;
    check(cudaDeviceGetAttribute(&value, attribute, device), "an attribute of the device");
    return value;
}

/* Asked once: drivers read the clock rate across the bus, which may take longer than a kernel. */
inline uint64_t cycles_per_us_of(int device)
{
    const int clock_khz = attribute_of(cudaDevAttrClockRate, device);
    return clock_khz >= 1000 ? clock_khz / 1000 : 1000;
}

inline Fit fit_of(const void *kernel, int device, dim3 blocks, dim3 threads, size_t shared_bytes)
{
    const auto text = [](unsigned long long number) { return std::to_string(number); };
    const uint64_t nr_logical = uint64_t(blocks.x) * blocks.y * blocks.z;
    const uint64_t nr_threads = uint64_t(threads.x) * threads.y * threads.z;
    const uint64_t most_threads = attribute_of(cudaDevAttrMaxThreadsPerBlock, device);
    if (nr_logical == 0 || nr_logical >> 31 || nr_threads == 0 || nr_threads > most_threads) {
        throw Error("gloop: a launch of " + text(nr_logical) + " blocks of " + text(nr_threads) +
                    " threads: a block of this device has at most " + text(most_threads) + " threads");
    }
    cudaFuncAttributes of_kernel;
    check(cudaFuncGetAttributes(&of_kernel, kernel), "a kernel of event loops");
    if (nr_threads > uint64_t(of_kernel.maxThreadsPerBlock)) {
        throw Error("gloop: " + text(nr_threads) + " threads of " + text(of_kernel.numRegs) +
                    " registers: there are not registers enough for more than " + text(of_kernel.maxThreadsPerBlock) +
                    " threads (nvcc -maxrregcount)");
    }
    const size_t all_shared = of_kernel.sharedSizeBytes + shared_bytes;
    const size_t most_shared = attribute_of(cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (all_shared > most_shared) {
        throw Error("gloop: " + text(all_shared) + " bytes of shared memory, " + text(of_kernel.sharedSizeBytes) +
                    " of them the kernel's own: a block of this device has at most " + text(most_shared));
    }
    if (shared_bytes > size_t(of_kernel.maxDynamicSharedSizeBytes)) {
        check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)),
              text(shared_bytes) + " bytes of shared memory");
    }
    int nr_each = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&nr_each, kernel, int(nr_threads), shared_bytes), "occupancy");
    if (nr_each == 0) {
        throw Error("gloop: " + text(nr_threads) + " threads, " + text(of_kernel.numRegs) + " registers each and " +
                    text(all_shared) + " bytes of shared memory do not fit a multiprocessor");
    }
    const uint64_t nr_resident = uint64_t(nr_each) * attribute_of(cudaDevAttrMultiProcessorCount, device);
    return {unsigned(std::min(nr_logical, nr_resident)), all_shared};
}
} // namespace gloop::detail
