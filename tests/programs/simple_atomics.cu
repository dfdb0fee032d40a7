/* Every thread of a grid at the same few words, with each atomic operation that integers have. */
#include "check.h"

enum { add, subtract, exchange, maximum, minimum, increment, decrement, swap, bits_and, bits_or, bits_xor, nr_words };

__global__ void atomics(int *words)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&words[add], 10);
    atomicSub(&words[subtract], 10);
    atomicExch(&words[exchange], thread);
    atomicMax(&words[maximum], thread);
    atomicMin(&words[minimum], thread);
    atomicInc((unsigned int *)&words[increment], 17);
    atomicDec((unsigned int *)&words[decrement], 137);
    atomicCAS(&words[swap], thread - 1, thread);
    atomicAnd(&words[bits_and], 2 * thread + 7);
    atomicOr(&words[bits_or], 1 << (thread % 20));
    atomicXor(&words[bits_xor], thread);
}

__global__ void wide_atomics(unsigned long long *sum, float *float_sum)
{
    atomicAdd(sum, 1ull << 33);
    atomicAdd(float_sum, 0.5f);
}

int main()
{
    const int nr_blocks = 64, nr_threads = 256, nr = nr_blocks * nr_threads;
    int words[nr_words] = {0};
    words[bits_and] = words[bits_xor] = 0xff;
    int *device;
    CHECK(cudaMalloc(&device, sizeof(words)));
    CHECK(cudaMemcpy(device, words, sizeof(words), cudaMemcpyHostToDevice));
    atomics<<<nr_blocks, nr_threads>>>(device);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(words, device, sizeof(words), cudaMemcpyDeviceToHost));
    unsigned int up = 0, down = 0;
    int all_and = 0xff, all_or = 0, all_xor = 0xff;
    for (int thread = 0; thread < nr; thread++) {
        up = up >= 17 ? 0 : up + 1;
        down = down == 0 || down > 137 ? 137 : down - 1;
        all_and &= 2 * thread + 7;
        all_or |= 1 << (thread % 20);
        all_xor ^= thread;
    }
    /* Which thread came last at the exchange, and how far the swaps got, is open. */
    bool is_right = words[add] == 10 * nr && words[subtract] == -10 * nr && words[maximum] == nr - 1 &&
                    words[minimum] == 0 && words[increment] == (int)up && words[decrement] == (int)down &&
                    words[bits_and] == all_and && words[bits_or] == all_or && words[bits_xor] == all_xor &&
                    words[exchange] >= 0 && words[exchange] < nr && words[swap] >= 0 && words[swap] < nr;
    std::printf("add %d max %d inc %d dec %d and %d or %d xor %d\n", words[add], words[maximum], words[increment],
                words[decrement], words[bits_and], words[bits_or], words[bits_xor]);
    struct {
        unsigned long long sum;
        float float_sum;
    } wide = {0, 0.0f};
    char *device_wide;
    CHECK(cudaMalloc(&device_wide, sizeof(wide)));
    CHECK(cudaMemcpy(device_wide, &wide, sizeof(wide), cudaMemcpyHostToDevice));
    wide_atomics<<<nr_blocks, nr_threads>>>((unsigned long long *)device_wide, (float *)(device_wide + 8));
    CHECK(cudaMemcpy(&wide, device_wide, sizeof(wide), cudaMemcpyDeviceToHost));
    std::printf("64-bit add %llu, float add %.1f\n", wide.sum, wide.float_sum);
    CHECK(cudaFree(device));
    CHECK(cudaFree(device_wide));
    return verdict(is_right && wide.sum == (1ull << 33) * nr && wide.float_sum == 0.5f * nr);
}
