/*
 * A product of matrices, so many times over, by a kernel that stays until all is done: its blocks take one tile after
 * the other from a counter. Between two tiles it looks at the word by which FairGV asks for the device (docs/yield.md),
 * and ends; the next launch goes on where the counter stands. Says on standard error how often that was, and how long
 * all of it took. Usage: gives_way [TIMES [word|plain [FILE]]]. "plain": without the word. With a file it begins again
 * until that is there.
 */
#include <chrono>
#include <cstring>
#include <dlfcn.h>
#include <unistd.h>
#include <vector>

#include "check.h"
#include "fairgv.h"

constexpr int tile = 16;
constexpr int width = 256;
constexpr int rows = 512;
constexpr unsigned tiles_across = width / tile;
constexpr unsigned nr_tiles = rows / tile * tiles_across;

template <bool has_word>
__global__ void multiply(const float *a, const float *b, float *product, unsigned nr_in_all, unsigned *next,
                         const volatile unsigned *word)
{
    __shared__ unsigned taken;
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0 && threadIdx.y == 0) {
            taken = has_word && *word ? nr_in_all : atomicAdd(next, 1u);
        }
        __syncthreads();
        if (taken >= nr_in_all) {
            return;
        }
        const int row = taken % nr_tiles / tiles_across * tile + threadIdx.y;
        const int column = taken % tiles_across * tile + threadIdx.x;
        float sum = 0.0f;
        for (int k = 0; k < width; k++) {
            sum += a[row * width + k] * b[k * width + column];
        }
        product[row * width + column] = sum;
    }
}

static bool attach(unsigned *word)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    auto attach = cuda ? (decltype(&fairgv_yield_attach))dlsym(cuda, "fairgv_yield_attach") : nullptr;
    return attach && attach((CUdeviceptr)word) == CUDA_SUCCESS;
}

/* As many blocks as fit the device. */
static int nr_resident(const void *kernel)
{
    int nr_each, nr_multiprocessors;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&nr_each, kernel, tile * tile, 0));
    CHECK(cudaDeviceGetAttribute(&nr_multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    return nr_each * nr_multiprocessors;
}

/* FNV-1a: of all bytes, in their order. */
static unsigned long long hash_of(const void *bytes, size_t nr_bytes)
{
    unsigned long long hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < nr_bytes; i++) {
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
    }
    return hash;
}

static int nr_wrong(const std::vector<float> &a, const std::vector<float> &b, const std::vector<float> &product)
{
    int nr = 0;
    for (size_t i = 0; i < product.size(); i += product.size() / 1024 + 1) {
        float expected = 0.0f;
        for (int k = 0; k < width; k++) {
            expected += a[i / width * width + k] * b[k * width + i % width];
        }
        nr += product[i] != expected;
    }
    return nr;
}

int main(int argc, char **argv)
{
    const unsigned nr_in_all = nr_tiles * (argc > 1 ? std::atoi(argv[1]) : 1);
    const bool is_plain = argc > 2 && std::strcmp(argv[2], "plain") == 0;
    const char *file = argc > 3 ? argv[3] : nullptr;
    std::vector<float> a(rows * width), b(width * width), product(a.size());
    for (size_t i = 0; i < a.size(); i++) {
        a[i] = float(i % 7) - 3; /* small integers: exact in any order of summation */
    }
    for (size_t i = 0; i < b.size(); i++) {
        b[i] = float(i % 5) - 2;
    }
    float *device[3];
    unsigned *next; /* and the word behind it */
    const size_t sizes[] = {a.size() * sizeof(float), b.size() * sizeof(float), product.size() * sizeof(float)};
    for (int i = 0; i < 3; i++) {
        CHECK(cudaMalloc(&device[i], sizes[i]));
    }
    CHECK(cudaMalloc(&next, 2 * sizeof(*next)));
    CHECK(cudaMemset(next, 0, 2 * sizeof(*next)));
    CHECK(cudaMemcpy(device[0], a.data(), sizes[0], cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device[1], b.data(), sizes[1], cudaMemcpyHostToDevice));
    const bool has_word = !is_plain && attach(next + 1);
    const auto kernel = has_word ? multiply<true> : multiply<false>;
    const int nr_blocks = nr_resident((const void *)kernel);
    std::printf("running\n");
    int nr_launches = 0, nr_rounds = 0;
    const auto begun = std::chrono::steady_clock::now();
    do {
        unsigned nr_taken = 0;
        CHECK(cudaMemset(next, 0, sizeof(*next)));
        do {
            kernel<<<nr_blocks, dim3(tile, tile)>>>(device[0], device[1], device[2], nr_in_all, next, next + 1);
            CHECK(cudaGetLastError());
            CHECK(cudaMemcpy(&nr_taken, next, sizeof(nr_taken), cudaMemcpyDeviceToHost));
            nr_launches++;
        } while (nr_taken < nr_in_all);
        nr_rounds++;
    } while (file && access(file, F_OK) != 0);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begun;
    std::fprintf(stderr, "gave way %d times in %d rounds, %.1f ms\n", nr_launches - nr_rounds, nr_rounds, took.count());
    CHECK(cudaMemcpy(product.data(), device[2], sizes[2], cudaMemcpyDeviceToHost));
    const int wrong = nr_wrong(a, b, product);
    std::printf("%d x %d, %d wrong, bytes %016llx\n", rows, width, wrong, hash_of(product.data(), sizes[2]));
    for (float *pointer : device) {
        CHECK(cudaFree(pointer));
    }
    CHECK(cudaFree(next));
    return verdict(wrong == 0);
}
