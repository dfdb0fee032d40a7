// Pins buffer after buffer, has the device read and write each where it lies, and checks every word of all of them.
//
// pinned_memory [MIB [NUMBER [hold]]]: so many buffers of so many MiB; one that is refused ends the row, and is told.
// With `hold` it says so and waits to be killed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>

#include "check.h"

__global__ void add(unsigned *words, size_t nr_words, unsigned summand)
{
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < nr_words) {
        words[i] += summand;
    }
}

static unsigned word_of(size_t buffer, size_t i)
{
    return unsigned(i * 2654435761u) ^ unsigned(buffer << 20);
}

static size_t nr_wrong(const unsigned *words, size_t nr_words, size_t buffer, unsigned summand)
{
    size_t nr = 0;
    for (size_t i = 0; i < nr_words; i++) {
        nr += words[i] != word_of(buffer, i) + summand;
    }
    return nr;
}

int main(int argc, char **argv)
{
    size_t bytes = (argc > 1 ? strtoull(argv[1], nullptr, 10) : 2) << 20;
    size_t nr_wanted = argc > 2 ? strtoull(argv[2], nullptr, 10) : 3;
    size_t nr_words = bytes / sizeof(unsigned);
    std::vector<unsigned *> buffers;
    unsigned *device;
    CHECK(cudaMalloc(&device, bytes));
    while (buffers.size() < nr_wanted) {
        unsigned *words;
        cudaError_t error = cudaMallocHost(&words, bytes);
        if (error != cudaSuccess) {
            printf("buffer %zu: %s\n", buffers.size(), cudaGetErrorName(error));
            break;
        }
        for (size_t i = 0; i < nr_words; i++) {
            words[i] = word_of(buffers.size(), i);
        }
        buffers.push_back(words);
    }
    if (argc > 3 && strcmp(argv[3], "hold") == 0) {
        printf("holding\n");
        pause();
    }
    size_t nr = 0;
    for (size_t buffer = 0; buffer < buffers.size(); buffer++) {
        CHECK(cudaMemcpyAsync(device, buffers[buffer], bytes, cudaMemcpyHostToDevice));
        add<<<unsigned((nr_words + 255) / 256), 256>>>(device, nr_words, unsigned(buffer) + 1);
        CHECK(cudaMemcpyAsync(buffers[buffer], device, bytes, cudaMemcpyDeviceToHost));
    }
    CHECK(cudaDeviceSynchronize());
    for (size_t buffer = 0; buffer < buffers.size(); buffer++) {
        nr += nr_wrong(buffers[buffer], nr_words, buffer, unsigned(buffer) + 1);
    }
    if (buffers.size() > 0) { // and where it lies
        add<<<unsigned((nr_words + 255) / 256), 256>>>(buffers.back(), nr_words, 7);
        CHECK(cudaDeviceSynchronize());
        nr += nr_wrong(buffers.back(), nr_words, buffers.size() - 1, unsigned(buffers.size()) + 7);
    }
    for (unsigned *words : buffers) {
        CHECK(cudaFreeHost(words));
    }
    CHECK(cudaFree(device));
    printf("%zu buffers of %zu MiB, %zu words wrong\n", buffers.size(), bytes >> 20, nr);
    return verdict(nr == 0);
}
