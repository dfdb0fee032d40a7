// Managed memory that is to stay with the CPU, large and small, used by kernels and the program in turn; it goes back
// to the device and comes again while that goes on. A kernel waits for a word of it.
#include "check.h"

static const int ROUNDS = 60, NR = 900000;

__global__ void add(unsigned int *values, int nr, unsigned int what)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < nr; i += gridDim.x * blockDim.x) {
        values[i] += what;
    }
}

__global__ void wait_for(volatile unsigned int *word, unsigned int wanted, unsigned int *seen)
{
    while (*word != wanted) {
    }
    *seen += wanted;
}

static void advise(void *memory, size_t bytes, bool prefers_host)
{
    cudaMemLocation host = {};
    host.type = cudaMemLocationTypeHost;
    CHECK(cudaMemAdvise(memory, bytes,
                        prefers_host ? cudaMemAdviseSetPreferredLocation : cudaMemAdviseUnsetPreferredLocation, host));
}

int main()
{
    unsigned int *values, *words, *seen, sum = 0, nr_wrong = 0;
    CHECK(cudaMallocManaged(&values, NR * sizeof(*values)));
    CHECK(cudaMallocManaged(&words, sizeof(*words)));
    CHECK(cudaMallocManaged(&seen, sizeof(*seen)));
    advise(words, sizeof(*words), true);
    *seen = 0;
    for (unsigned int round = 1; round <= ROUNDS; round++) {
        if (round % 10 == 1) {
            advise(values, NR * sizeof(*values), round % 20 == 1);
        }
        values[round] += 1000;
        add<<<64, 128>>>(values, NR, round);
        wait_for<<<1, 1>>>(words, round, seen);
        CHECK(cudaGetLastError());
        *(volatile unsigned int *)words = round;
        CHECK(cudaDeviceSynchronize());
        sum += round;
        for (int i = 0; i < NR; i += round) {
            nr_wrong += values[i] != sum + (i > 0 && i <= (int)round ? 1000 : 0);
        }
    }
    printf("wrong: %u, seen: %u\n", nr_wrong, *seen);
    return verdict(nr_wrong == 0 && *seen == sum);
}
