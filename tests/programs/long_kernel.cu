/* A kernel as long as one likes, which keeps registers, shared memory and barriers busy all the time, and a digest of
 * what it computed: long_kernel [ROUNDS]. A short one, without ROUNDS, is compared with the host's as well. */
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "check.h"

static const unsigned threads = 128;

/* A thread's state after one round: all that a kernel which is taken off the device must find again. `shared` holds one
 * word for each thread of the block. */
static __device__ uint32_t play_round(uint32_t state, uint32_t *shared)
{
    const unsigned self = threadIdx.x, next = (self + 1) % blockDim.x;
    shared[self] = state = state * 1664525u + 1013904223u;
    __syncthreads();
    state ^= shared[next] >> 7;
    __syncthreads();
    return state;
}

__global__ void work(uint32_t *states, unsigned long long nr_rounds)
{
    __shared__ uint32_t shared[threads];
    const unsigned self = blockIdx.x * threads + threadIdx.x;
    uint32_t state = self;
    for (unsigned long long round = 0; round < nr_rounds; round++) {
        state = play_round(state, shared);
    }
    states[self] = state;
}

static bool is_as_on_host(const std::vector<uint32_t> &states, unsigned long long nr_rounds)
{
    std::vector<uint32_t> mine(states.size()), shared(states.size());
    for (size_t i = 0; i < mine.size(); i++) {
        mine[i] = (uint32_t)i;
    }
    for (unsigned long long round = 0; round < nr_rounds; round++) {
        for (size_t i = 0; i < mine.size(); i++) {
            shared[i] = mine[i] = mine[i] * 1664525u + 1013904223u;
        }
        for (size_t i = 0; i < mine.size(); i++) {
            mine[i] ^= shared[i / threads * threads + (i + 1) % threads] >> 7;
        }
    }
    return mine == states;
}

int main(int nr_arguments, char **arguments)
{
    const unsigned long long nr_rounds = nr_arguments > 1 ? strtoull(arguments[1], nullptr, 10) : 200;
    int nr_blocks;
    CHECK(cudaDeviceGetAttribute(&nr_blocks, cudaDevAttrMultiProcessorCount, 0));
    std::vector<uint32_t> states(nr_blocks * threads);
    uint32_t *device_states;
    CHECK(cudaMalloc(&device_states, states.size() * sizeof(uint32_t)));
    work<<<nr_blocks, threads>>>(device_states, 0); /* its code is on the device before the time counts */
    CHECK(cudaDeviceSynchronize());
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(begin));
    work<<<nr_blocks, threads>>>(device_states, nr_rounds);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(end));
    CHECK(cudaMemcpy(states.data(), device_states, states.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    uint64_t digest = 14695981039346656037ull;
    for (uint32_t state : states) {
        digest = (digest ^ state) * 1099511628211ull;
    }
    float ms;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    printf("digest %016llx in %.3f ms\n", (unsigned long long)digest, ms);
    return nr_arguments > 1 ? 0 : verdict(is_as_on_host(states, nr_rounds));
}
