/*
 * A program of the measurements in space: what one block does (`View::block`), the same as loops on the host
 * (`View::loops`), its arrays on both sides, and both ways to launch it, as a plain grid and persistently. A round is
 * all phases, one launch each; a repeated launch is the first phase many times.
 *
 * A View is a plain structure of pointers and sizes, once for the host and once for the device, passed to kernels by
 * value. After each phase the loops and the device shall agree in every array.
 */
#ifndef BENCHMARKS_SPACE_PROGRAM_CUH
#define BENCHMARKS_SPACE_PROGRAM_CUH

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "giving.cuh"
#include "telling.cuh"

#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t cuda_error = (call);                                                                               \
        if (cuda_error != cudaSuccess) {                                                                               \
            fprintf(stderr, "%s gave %s: %s\n", #call, cudaGetErrorName(cuda_error), cudaGetErrorString(cuda_error));  \
            exit(2);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { HOST, DEVICE };

/* Of two arrays that phases go to and fro between. Chosen without an index, for which a thread would need a stack. */
template <class T> static __host__ __device__ T *from_of(T *const *two, unsigned phase)
{
    return phase & 1 ? two[1] : two[0];
}

template <class T> static __host__ __device__ T *to_of(T *const *two, unsigned phase)
{
    return phase & 1 ? two[0] : two[1];
}

template <class T> struct both {
    T *sides[2];
    T *operator[](int side) const { return sides[side]; }
    size_t nr;
};

/* One array on both sides. Numbers agree if they differ by at most tolerance * max(1, |loops|). */
struct array {
    void *host, *device;
    size_t nr, nr_bytes;
    bool is_float;
    double tolerance;

    double at(const void *memory, size_t index) const
    {
        return is_float ? ((const float *)memory)[index] : ((const int32_t *)memory)[index];
    }
};

/* What kernels of programs made from now on want of a multiprocessor's memory as shared memory; 0: as the driver says.
 */
static int &shared_memory_percent(void)
{
    static int percent = 0;
    return percent;
}

struct program {
    std::string name;
    unsigned nr_blocks = 0, nr_phases = 1;
    std::vector<array> arrays;

    virtual ~program() {}
    virtual void launch(unsigned phase, cudaStream_t stream) = 0;
    virtual void launch_persistent(const struct giving &giving, unsigned nr, cudaStream_t stream) = 0;
    virtual void launch_repeated(unsigned times, const struct telling &telling, cudaStream_t stream) = 0;
    virtual unsigned most_each() = 0; /* how many of its blocks a multiprocessor holds at once, at most MOST_EACH */
    virtual void loops(unsigned phase) = 0;

    /* Zeroed on the host. 32-bit numbers, or structures of floats. */
    template <class T> both<T> make(size_t nr, double tolerance = 0)
    {
        array made = {calloc(nr, sizeof(T)),        nullptr,  nr * sizeof(T) / 4, nr * sizeof(T),
                      !std::is_same<T, int>::value, tolerance};
        CUDA(cudaMalloc(&made.device, made.nr_bytes));
        arrays.push_back(made);
        return {{(T *)made.host, (T *)made.device}, nr};
    }

    void copy_in()
    {
        for (const array &each : arrays) {
            CUDA(cudaMemcpy(each.device, each.host, each.nr_bytes, cudaMemcpyHostToDevice));
        }
        CUDA(cudaDeviceSynchronize());
    }

    /* Whether all arrays agree; the first difference goes to stderr. */
    bool agrees() const
    {
        for (size_t number = 0; number < arrays.size(); number++) {
            const array &each = arrays[number];
            std::vector<char> device(each.nr_bytes);
            CUDA(cudaMemcpy(device.data(), each.device, each.nr_bytes, cudaMemcpyDeviceToHost));
            for (size_t index = 0; index < each.nr; index++) {
                double ours = each.at(device.data(), index), loops = each.at(each.host, index);
                if (!(fabs(ours - loops) <= each.tolerance * std::max(1.0, fabs(loops)))) {
                    fprintf(stderr, "%s: element %zu of array %zu is %g on the device and %g in the loops\n",
                            name.c_str(), index, number, ours, loops);
                    return false;
                }
            }
        }
        return true;
    }
};

template <class View> struct program_of : program {
    View views[2];

    program_of(const char *called, unsigned blocks, unsigned phases)
    {
        name = called;
        nr_blocks = blocks;
        nr_phases = phases;
        if (int percent = shared_memory_percent()) {
            const auto wanted = cudaFuncAttributePreferredSharedMemoryCarveout;
            CUDA(cudaFuncSetAttribute(plain<View>, wanted, percent));
            CUDA(cudaFuncSetAttribute(persistent<View>, wanted, percent));
        }
    }

    void launch(unsigned phase, cudaStream_t stream) override
    {
        plain<<<nr_blocks, THREADS, 0, stream>>>(views[DEVICE], phase);
        CUDA(cudaGetLastError());
    }

    void launch_persistent(const struct giving &giving, unsigned nr, cudaStream_t stream) override
    {
        persistent<<<nr, THREADS, 0, stream>>>(views[DEVICE], giving);
        CUDA(cudaGetLastError());
    }

    void launch_repeated(unsigned times, const struct telling &telling, cudaStream_t stream) override
    {
        repeated<<<nr_blocks * times, THREADS, 0, stream>>>(views[DEVICE], nr_blocks, telling);
        CUDA(cudaGetLastError());
    }

    unsigned most_each() override
    {
        int fit;
        CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, persistent<View>, THREADS, 0));
        return std::min(fit, (int)MOST_EACH);
    }

    void loops(unsigned phase) override { views[HOST].loops(phase); }
};

/* `view` makes the structure of a side. The inputs are on the host by now. */
template <class View, class Make> static std::unique_ptr<program> finished(program_of<View> *made, Make view)
{
    for (int side : {HOST, DEVICE}) {
        made->views[side] = view(side);
    }
    made->copy_in();
    return std::unique_ptr<program>(made);
}

/* Deterministic, in [0, 1). */
static inline float drawn(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (float)(*state >> 40) / (float)(1 << 24);
}

#endif
