// Tells whether fresh device memory still holds what another program left there.
//
// leftovers fill MIB: writes a mark all over so much device memory, and ends without freeing it.
// leftovers look MIB: takes so much and counts the marks in it before anything is written. By itself it does both, in
// one process, and tells only whether what it wrote came back: what a process finds of its own is its own affair.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "check.h"

static const unsigned long long MARK = 0x6c6566746f766572ull;

__global__ void fill(unsigned long long *words, size_t nr_words)
{
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < nr_words; i += gridDim.x * size_t(blockDim.x)) {
        words[i] = MARK;
    }
}

__global__ void count(const unsigned long long *words, size_t nr_words, unsigned long long *nr_marks)
{
    unsigned long long nr = 0;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < nr_words; i += gridDim.x * size_t(blockDim.x)) {
        nr += words[i] == MARK;
    }
    atomicAdd(nr_marks, nr);
}

static unsigned long long marks_in(const unsigned long long *words, size_t nr_words)
{
    unsigned long long *nr_marks, nr = 0;
    CHECK(cudaMallocHost(&nr_marks, sizeof(*nr_marks)));
    *nr_marks = 0;
    count<<<128, 128>>>(words, nr_words, nr_marks);
    CHECK(cudaDeviceSynchronize());
    nr = *nr_marks;
    CHECK(cudaFreeHost(nr_marks));
    return nr;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "both";
    size_t nr_words = ((argc > 2 ? strtoull(argv[2], nullptr, 10) : 4) << 20) / sizeof(unsigned long long);
    unsigned long long *words;

    CHECK(cudaMalloc(&words, nr_words * sizeof(*words)));
    if (!strcmp(way, "look")) {
        unsigned long long nr = marks_in(words, nr_words);
        std::printf("%llu of %zu words were left by another program\n", nr, nr_words);
        return verdict(nr == 0);
    }
    fill<<<128, 128>>>(words, nr_words);
    CHECK(cudaDeviceSynchronize());
    return verdict(marks_in(words, nr_words) == nr_words);
}
