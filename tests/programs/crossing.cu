/*
 * Ten streams with events between them, each with pinned memory and memory of the device that stay. For each line of
 * its input the numbers go round: from pinned memory to the device, changed there once the stream before is done, and
 * back. Whatever happens to the program between two lines or in one, the sums are those of a program that is alone.
 */
#include <iostream>
#include <string>

#include "check.h"

static const int NR_STREAMS = 10, NR_MARKS = 8;
static const size_t NR = 1 << 16;

__global__ void pass_on(unsigned *mine, const unsigned *before, size_t nr, unsigned what)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += gridDim.x * (size_t)blockDim.x) {
        mine[i] = mine[i] * 3 + before[i] + what;
    }
}

int main()
{
    cudaStream_t streams[NR_STREAMS];
    cudaEvent_t done[NR_STREAMS], marks[NR_MARKS];
    unsigned *pinned[NR_STREAMS], *values[NR_STREAMS];
    unsigned nr_lines = 0;
    float ms = -1;
    for (int i = 0; i < NR_STREAMS; i++) {
        CHECK(cudaStreamCreateWithFlags(&streams[i], i % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
        CHECK(cudaEventCreateWithFlags(&done[i], i % 3 ? cudaEventDisableTiming : cudaEventDefault));
        CHECK(cudaMallocHost(&pinned[i], NR * sizeof(*pinned[i])));
        CHECK(cudaMalloc(&values[i], NR * sizeof(*values[i])));
        CHECK(cudaMemset(values[i], i, NR * sizeof(*values[i])));
        for (size_t k = 0; k < NR; k++) {
            pinned[i][k] = (unsigned)(i * NR + k);
        }
    }
    for (cudaEvent_t &mark : marks) {
        CHECK(cudaEventCreate(&mark));
        CHECK(cudaEventRecord(mark, streams[0]));
    }
    std::printf("ready\n");
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
        unsigned long long sum = 0;
        nr_lines++;
        for (int i = 0; i < NR_STREAMS; i++) {
            const int before = i ? i - 1 : 0; /* the last one's memory is on its way meanwhile */
            CHECK(cudaMemcpyAsync(values[i], pinned[i], NR * sizeof(*values[i]), cudaMemcpyHostToDevice, streams[i]));
            if (i > 0) {
                CHECK(cudaStreamWaitEvent(streams[i], done[before], 0));
            }
            pass_on<<<4, 64, 0, streams[i]>>>(values[i], values[before], NR, nr_lines);
            CHECK(cudaEventRecord(done[i], streams[i]));
            CHECK(cudaMemcpyAsync(pinned[i], values[i], NR * sizeof(*values[i]), cudaMemcpyDeviceToHost, streams[i]));
        }
        for (int i = 0; i < NR_STREAMS; i++) {
            CHECK(cudaStreamSynchronize(streams[i]));
            CHECK(cudaEventQuery(done[i]));
            for (size_t k = 0; k < NR; k++) {
                sum += pinned[i][k];
            }
        }
        for (int i = 1; i < NR_MARKS; i++) {
            CHECK(cudaEventElapsedTime(&ms, marks[i - 1], marks[i]));
            sum += ms >= 0 && ms < 60000 ? 0 : 1;
        }
        std::printf("%u: %llu\n", nr_lines, sum);
        std::fflush(stdout);
    }
    return verdict(true);
}
