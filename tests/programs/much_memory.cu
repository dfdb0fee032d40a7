/*
 * Kernels that change all of much memory, each of its words looked at, for three rounds, or until a file is there. It
 * has large pieces, a small one, and one of a pool that is freed and had again between rounds. Prints "running" after
 * the first round. Usage: much_memory [MIB [FILE [KIND]]], the large pieces of this kind: allocated, mapped, managed.
 */
#include <cstring>
#include <unistd.h>
#include <vector>

#include "driver_calls.h"

constexpr size_t piece_bytes = 24 << 20;

struct piece {
    unsigned *words;
    size_t nr;
};

/* Every word differs from its neighbours, and from what it was before. */
__device__ unsigned word(size_t index, unsigned round)
{
    return (unsigned)index * 2654435761u + round * 40503u;
}

__global__ void fill(unsigned *words, size_t nr, unsigned round)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += (size_t)gridDim.x * blockDim.x) {
        words[i] = word(i, round);
    }
}

__global__ void step(unsigned *words, size_t nr, unsigned round, unsigned *nr_wrong)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += (size_t)gridDim.x * blockDim.x) {
        if (words[i] != word(i, round)) {
            atomicAdd(nr_wrong, 1);
        }
        words[i] = word(i, round + 1);
    }
}

static unsigned *map(size_t bytes)
{
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    const CUmemAccessDesc both = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    OK(cuMemCreate(&handle, bytes, &prop, 0));
    OK(cuMemMap(address, bytes, 0, handle, 0));
    OK(cuMemRelease(handle));
    OK(cuMemSetAccess(address, bytes, &both, 1));
    return (unsigned *)address;
}

static unsigned *allocate(const char *kind, size_t bytes)
{
    unsigned *words = NULL;
    if (strcmp(kind, "mapped") == 0) {
        return map(bytes);
    }
    CHECK(strcmp(kind, "managed") == 0 ? cudaMallocManaged(&words, bytes) : cudaMalloc(&words, bytes));
    return words;
}

static void give_back(const char *kind, const piece &each)
{
    if (strcmp(kind, "mapped") != 0) {
        CHECK(cudaFree(each.words));
        return;
    }
    const CUdeviceptr address = (CUdeviceptr)each.words;
    OK(cuMemUnmap(address, each.nr * sizeof(unsigned)));
    OK(cuMemAddressFree(address, each.nr * sizeof(unsigned)));
}

int main(int argc, char **argv)
{
    size_t left = (argc > 1 ? strtoul(argv[1], NULL, 10) : 64) << 20;
    const char *until = argc > 2 ? argv[2] : NULL;
    const char *kind = argc > 3 ? argv[3] : "allocated";
    std::vector<piece> pieces;
    unsigned *nr_wrong, *pooled, seen = 0;
    constexpr size_t nr_pooled = 1 << 20;
    CHECK(cudaMalloc(&nr_wrong, sizeof(unsigned)));
    CHECK(cudaMemset(nr_wrong, 0, sizeof(unsigned)));
    while (left != 0) {
        piece next = {NULL, (left < piece_bytes ? left : piece_bytes) / sizeof(unsigned)};
        next.words = allocate(kind, next.nr * sizeof(unsigned));
        fill<<<64, 256>>>(next.words, next.nr, 0);
        left -= next.nr * sizeof(unsigned);
        pieces.push_back(next);
    }
    for (unsigned round = 0; until ? access(until, F_OK) != 0 : round < 3; round++) {
        CHECK(cudaMallocAsync(&pooled, nr_pooled * sizeof(unsigned), 0));
        fill<<<64, 256>>>(pooled, nr_pooled, round);
        for (const piece &each : pieces) {
            step<<<64, 256>>>(each.words, each.nr, round, nr_wrong);
        }
        step<<<64, 256>>>(pooled, nr_pooled, round, nr_wrong);
        CHECK(cudaFreeAsync(pooled, 0));
        CHECK(cudaDeviceSynchronize());
        if (round == 0) {
            std::printf("running\n");
            std::fflush(stdout);
        }
    }
    CHECK(cudaMemcpy(&seen, nr_wrong, sizeof(seen), cudaMemcpyDeviceToHost));
    for (const piece &each : pieces) {
        give_back(kind, each);
    }
    return verdict(seen == 0);
}
