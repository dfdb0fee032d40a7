/*
 * A cooperative launch of as many blocks as the device holds: heat spreads along a rod, and the whole grid meets
 * between two steps. Compared with the same steps on the CPU.
 */
#include <cooperative_groups.h>
#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

constexpr int nr = 5000, nr_steps = 20, nr_threads = 128;

__global__ void spread(float *from, float *to)
{
    cg::grid_group grid = cg::this_grid();

    for (int step = 0; step < nr_steps; step++) {
        for (int i = grid.thread_rank(); i < nr; i += grid.size()) {
            to[i] = i == 0 || i == nr - 1 ? from[i] : 0.25f * from[i - 1] + 0.5f * from[i] + 0.25f * from[i + 1];
        }
        grid.sync();
        float *swapped = from;
        from = to;
        to = swapped;
    }
}

int main()
{
    int nr_multiprocessors, nr_per_multiprocessor, nr_wrong = 0;
    CHECK(cudaDeviceGetAttribute(&nr_multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&nr_per_multiprocessor, spread, nr_threads, 0));
    std::vector<float> rod(nr), next(nr), got(nr);
    for (int i = 0; i < nr; i++) {
        rod[i] = i % 100 == 50 ? 1000 : 0;
    }
    float *from, *to;
    CHECK(cudaMalloc(&from, nr * sizeof(float)));
    CHECK(cudaMalloc(&to, nr * sizeof(float)));
    CHECK(cudaMemcpy(from, rod.data(), nr * sizeof(float), cudaMemcpyHostToDevice));
    void *arguments[] = {&from, &to};
    int nr_blocks = nr_multiprocessors * nr_per_multiprocessor;
    cudaError_t refused = cudaLaunchCooperativeKernel((void *)spread, nr_blocks + 1, nr_threads, arguments, 0, nullptr);
    std::printf("one block more: %s, then %s\n", cudaGetErrorName(refused), cudaGetErrorName(cudaGetLastError()));
    CHECK(cudaLaunchCooperativeKernel((void *)spread, nr_blocks, nr_threads, arguments, 0, nullptr));
    CHECK(cudaMemcpy(got.data(), nr_steps % 2 ? to : from, nr * sizeof(float), cudaMemcpyDeviceToHost));
    for (int step = 0; step < nr_steps; step++) {
        for (int i = 0; i < nr; i++) {
            next[i] = i == 0 || i == nr - 1 ? rod[i] : 0.25f * rod[i - 1] + 0.5f * rod[i] + 0.25f * rod[i + 1];
        }
        rod.swap(next);
    }
    for (int i = 0; i < nr; i++) {
        nr_wrong += rod[i] - got[i] > 1e-3f || got[i] - rod[i] > 1e-3f;
    }
    std::printf("%d steps of %d cells, %d wrong\n", nr_steps, nr, nr_wrong);
    return verdict(nr_wrong == 0);
}
