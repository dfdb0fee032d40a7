/* spin: blocks that watch the clock for a given time, one on each multiprocessor. */
#ifndef BENCHMARKS_SPACE_SPIN_CUH
#define BENCHMARKS_SPACE_SPIN_CUH

#include "program.cuh"

struct spin_view {
    unsigned long long ns, *counter; /* of blocks that have ended; none: they are not counted here */

    __device__ void block(unsigned, unsigned) const
    {
        if (threadIdx.x == 0) {
            unsigned long long begun, now;
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
            do {
                asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
            } while (now - begun < ns);
            if (counter) {
                atomicAdd(counter, 1);
            }
        }
        __syncthreads(); /* all of the block keeps its place */
    }

    void loops(unsigned) const {}
};

static inline std::unique_ptr<program> make_spin(const char *name, double us)
{
    int multiprocessors;
    CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    auto made = new program_of<spin_view>(name, (unsigned)multiprocessors, 1);
    return finished(made, [&](int) { return spin_view{(unsigned long long)(1000 * us), nullptr}; });
}

#endif
