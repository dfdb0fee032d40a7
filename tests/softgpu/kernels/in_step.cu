/* Warps that rely on running in step: volatile shared memory, and no barrier between what threads write and read. */
#include "check.cuh"

#define NR_THREADS 128
#define NR_ROWS    64

static __device__ void sum_of_warp(volatile int *sums, int thread)
{
    sums[thread] += sums[thread + 32];
    sums[thread] += sums[thread + 16];
    sums[thread] += sums[thread + 8];
    sums[thread] += sums[thread + 4];
    sums[thread] += sums[thread + 2];
    sums[thread] += sums[thread + 1];
}

static __global__ void block_sums(const int *in, int *out)
{
    __shared__ int sums[NR_THREADS];
    int thread = threadIdx.x;

    sums[thread] = in[blockIdx.x * NR_THREADS + thread];
    __syncthreads();
    if (thread < 64) {
        sums[thread] += sums[thread + 64];
    }
    __syncthreads();
    if (thread < 32) {
        sum_of_warp(sums, thread);
    }
    if (thread == 0) {
        out[blockIdx.x] = sums[0];
    }
}

static __device__ __noinline__ int scanned(volatile int *places, int lane, int value)
{
    places[lane] = 0;
    places[lane + 32] = value;
    for (int distance = 1; distance < 32; distance *= 2) {
        value += places[lane + 32 - distance];
        places[lane + 32] = value;
    }
    return value;
}

static __global__ void warp_scans(const int *in, int *out)
{
    __shared__ int places[NR_THREADS / 32][64];
    int thread = threadIdx.x;

    out[thread] = scanned(places[thread / 32], thread % 32, in[thread]);
}

/* Row after row: fewer and fewer of a warp's threads add, and warps do not take equally long. */
static __global__ void row_sums(const int *starts, const int *in, int *out)
{
    __shared__ volatile int sums[NR_THREADS];
    int thread = threadIdx.x, lane = thread % 32, sum = 0;

    for (int row = thread / 32; row < NR_ROWS; row += NR_THREADS / 32, sum = 0) {
        for (int i = starts[row] + lane; i < starts[row + 1]; i += 32) {
            sum += in[i];
        }
        sums[thread] = sum;
        if (lane < 16) {
            sums[thread] += sums[thread + 16];
        }
        if (lane < 8) {
            sums[thread] += sums[thread + 8];
        }
        if (lane < 4) {
            sums[thread] += sums[thread + 4];
        }
        if (lane < 2) {
            sums[thread] += sums[thread + 2];
        }
        if (lane < 1) {
            sums[thread] += sums[thread + 1];
        }
        if (lane == 0) {
            out[row] = sums[thread];
        }
    }
}

static void check_sums(const int *values, const int *in, int *out)
{
    block_sums<<<8, NR_THREADS>>>(in, out);
    const int *got = fetched(out, 8);
    for (int block = 0; block < 8; block++) {
        int sum = 0;

        for (int i = 0; i < NR_THREADS; i++) {
            sum += values[block * NR_THREADS + i];
        }
        expect("block", block, got[block], sum);
    }
}

static void check_scans(const int *values, const int *in, int *out)
{
    warp_scans<<<1, NR_THREADS>>>(in, out);
    const int *got = fetched(out, NR_THREADS);
    for (int i = 0, sum = 0; i < NR_THREADS; i++) {
        sum = (i % 32 ? sum : 0) + values[i];
        expect("scan", i, got[i], sum);
    }
}

static void check_rows(const int *values, const int *in, int *out)
{
    int starts[NR_ROWS + 1] = {0};
    int *places = managed<int>(NR_ROWS + 1);

    for (int row = 0; row < NR_ROWS; row++) {
        starts[row + 1] = starts[row] + row * 7 % 31;
    }
    OK(cudaMemcpy(places, starts, sizeof(starts), cudaMemcpyHostToDevice));
    row_sums<<<1, NR_THREADS>>>(places, in, out);
    const int *got = fetched(out, NR_ROWS);
    for (int row = 0; row < NR_ROWS; row++) {
        int sum = 0;

        for (int i = starts[row]; i < starts[row + 1]; i++) {
            sum += values[i];
        }
        expect("row", row, got[row], sum);
    }
}

int main()
{
    static int values[8 * NR_THREADS];
    int *in = managed<int>(8 * NR_THREADS), *out = managed<int>(NR_THREADS);

    for (int i = 0; i < 8 * NR_THREADS; i++) {
        values[i] = i * 37 % 101;
    }
    OK(cudaMemcpy(in, values, sizeof(values), cudaMemcpyHostToDevice));
    check_sums(values, in, out);
    check_scans(values, in, out);
    check_rows(values, in, out);
    return finish();
}
