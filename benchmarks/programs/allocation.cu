/*
 * What memory of the device costs: getting it and giving it back by size, many small pieces, and a kernel and copies on
 * it. Prints one JSON object; times in us, medians over rounds, speeds in GB/s. fairgv-bench allocation runs it
 * natively and as a guest.
 *
 * allocation ROUNDS SMALL MIB SIZE...: so many rounds, so many small pieces, MiB of the memory that is used, bytes.
 * What is larger than half of the device's memory is left out. Wrong when somebody else's work is on the device:
 * freeing may wait for it.
 */
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "check.h"

static const size_t MOST_SMALL_BYTES = 1 << 20;
static const size_t NR_SMALL_AT_ONCE = 1000;
static const size_t MOST_COPY_BYTES = 256 << 20;
static const int NR_KERNELS_IN_A_ROW = 10;

__global__ void add_one(uint4 *memory, size_t nr)
{
    for (size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x; at < nr; at += (size_t)gridDim.x * blockDim.x) {
        uint4 value = memory[at];
        memory[at] = make_uint4(value.x + 1, value.y + 1, value.z + 1, value.w + 1);
    }
}

static double now_us()
{
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/* One step after the other, each timed by itself: ", [SIZE, US, ...]", without the comma for the first size. The first
 * round is not counted. */
static void print_steps(size_t nr_bytes, int nr_rounds, bool is_first, const std::vector<std::function<void()>> &steps)
{
    std::vector<std::vector<double>> times(steps.size());
    for (int round = 0; round < nr_rounds + 1; round++) {
        for (size_t number = 0; number < steps.size(); number++) {
            double begin = now_us();
            steps[number]();
            if (round > 0) {
                times[number].push_back(now_us() - begin);
            }
        }
    }
    std::printf("%s[%zu", is_first ? "" : ", ", nr_bytes);
    for (const std::vector<double> &each : times) {
        std::printf(", %.3f", median(each));
    }
    std::printf("]");
}

static void print_malloc(const std::vector<size_t> &sizes, int nr_rounds)
{
    std::printf("\"malloc\": [");
    for (size_t nr_bytes : sizes) {
        void *memory;
        auto get = [&] { CHECK(cudaMalloc(&memory, nr_bytes)); };
        auto give_back = [&] { CHECK(cudaFree(memory)); };
        print_steps(nr_bytes, nr_rounds, nr_bytes == sizes[0], {get, give_back});
    }
    std::printf("]");
}

/* Of the default pool, which keeps up to `threshold` bytes and is empty afterwards. */
static void print_pool(const char *name, uint64_t threshold, const std::vector<size_t> &sizes, int nr_rounds)
{
    cudaMemPool_t pool;
    cudaStream_t stream;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    CHECK(cudaStreamCreate(&stream));
    std::printf(", \"%s\": [", name);
    for (size_t nr_bytes : sizes) {
        void *memory;
        auto get = [&] { CHECK(cudaMallocAsync(&memory, nr_bytes, stream)); };
        auto give_back = [&] { CHECK(cudaFreeAsync(memory, stream)); };
        auto wait = [&] { CHECK(cudaStreamSynchronize(stream)); };
        print_steps(nr_bytes, nr_rounds, nr_bytes == sizes[0], {get, give_back, wait});
    }
    std::printf("]");
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaMemPoolTrimTo(pool, 0));
}

/* Small pieces of random sizes, the same in every run; each takes the place of a random one of those that are kept. */
static void print_small(int nr)
{
    std::mt19937 random(1);
    std::vector<void *> kept(NR_SMALL_AT_ONCE);
    double begin = now_us();
    for (int number = 0; number < nr; number++) {
        void *&place = kept[random() % kept.size()];
        CHECK(cudaFree(place));
        CHECK(cudaMalloc(&place, 1 + random() % MOST_SMALL_BYTES));
    }
    for (void *memory : kept) {
        CHECK(cudaFree(memory));
    }
    std::printf(", \"small_us\": %.1f", now_us() - begin);
}

/* GB/s of passes in a row over so many bytes each, by the device's clock. */
static double speed(cudaStream_t stream, int nr_rounds, size_t nr_bytes, int nr_passes,
                    const std::function<void()> &pass)
{
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    std::vector<double> found;
    for (int round = 0; round < nr_rounds + 1; round++) {
        float ms;
        CHECK(cudaEventRecord(begin, stream));
        for (int number = 0; number < nr_passes; number++) {
            pass();
        }
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (round > 0) {
            found.push_back(nr_passes * (nr_bytes / (1e6 * ms)));
        }
    }
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    return median(found);
}

static void expect(uint32_t found, uint32_t right)
{
    if (found != right) {
        std::fprintf(stderr, "allocation: memory has %u and should have %u\n", found, right);
        std::exit(1);
    }
}

/* A kernel that reads and writes all of one allocation, several in a row so that the way there does not count, and
 * copies of pinned memory to and from it, piece by piece. */
static void print_use(int nr_rounds, size_t nr_bytes)
{
    char *device, *pinned;
    cudaStream_t stream;
    int nr_processors;
    size_t piece = std::min(nr_bytes, MOST_COPY_BYTES), used = nr_bytes / piece * piece;
    CHECK(cudaDeviceGetAttribute(&nr_processors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&device, nr_bytes));
    CHECK(cudaMallocHost(&pinned, piece));
    std::memset(pinned, 0, piece);
    auto copy = [&](bool is_back) {
        for (size_t at = 0; at < used; at += piece) {
            void *to = is_back ? pinned : device + at, *from = is_back ? device + at : pinned;
            CHECK(cudaMemcpyAsync(to, from, piece, cudaMemcpyDefault, stream));
        }
    };
    auto compute = [&] {
        add_one<<<nr_processors * 8, 256, 0, stream>>>((uint4 *)device, used / sizeof(uint4));
        CHECK(cudaGetLastError());
    };
    double to = speed(stream, nr_rounds, used, 1, [&] { copy(false); });
    double kernel = speed(stream, nr_rounds, 2 * used, NR_KERNELS_IN_A_ROW, compute);
    double from = speed(stream, nr_rounds, used, 1, [&] { copy(true); });
    for (size_t at : {(size_t)0, piece - sizeof(uint32_t)}) {
        uint32_t found;
        std::memcpy(&found, pinned + at, sizeof(found));
        expect(found, (nr_rounds + 1) * NR_KERNELS_IN_A_ROW);
    }
    std::printf(", \"kernel\": %.4f, \"to_device\": %.4f, \"from_device\": %.4f", kernel, to, from);
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        std::fprintf(stderr, "usage: allocation ROUNDS SMALL MIB SIZE...\n");
        return 1;
    }
    int nr_rounds = std::atoi(argv[1]);
    size_t nr_free, nr_total;
    std::vector<size_t> sizes;
    CHECK(cudaMemGetInfo(&nr_free, &nr_total));
    for (int number = 4; number < argc; number++) {
        size_t nr_bytes = std::strtoull(argv[number], nullptr, 10);
        if (nr_bytes <= nr_total / 2) {
            sizes.push_back(nr_bytes);
        }
    }
    std::printf("{");
    print_malloc(sizes, nr_rounds);
    print_pool("released", 0, sizes, nr_rounds);
    print_pool("kept", UINT64_MAX, sizes, nr_rounds);
    print_small(std::atoi(argv[2]));
    print_use(nr_rounds, (size_t)std::atoi(argv[3]) << 20);
    std::printf("}\n");
    return 0;
}
