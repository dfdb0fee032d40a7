/*
 * BlackScholes, after the CUDA SDK: prices of European options, two for each thread, with the fast functions of the
 * device. Each round is one launch and a wait for it.
 */
#include "BlackScholes.h"

#include <cstdlib>
#include <cuda_runtime.h>

#include "common.h"

static const int block_size = 128;

enum { STOCK, STRIKE, YEARS, NR_INPUTS };
enum { CALL, PUT, NR_OUTPUTS };

static size_t nr_options;
static float *inputs[NR_INPUTS], *loops[NR_OUTPUTS], *fetched[NR_OUTPUTS]; /* of the host */
static float *d_inputs[NR_INPUTS], *d_outputs[NR_OUTPUTS];

__device__ static float normal_distribution(float x)
{
    float k = __fdividef(1, 1 + CND_P * fabsf(x));
    float tail =
        INVERSE_SQRT_2PI * __expf(-0.5f * x * x) * k * (CND_1 + k * (CND_2 + k * (CND_3 + k * (CND_4 + k * CND_5))));
    return x > 0 ? 1 - tail : tail;
}

__device__ static void price(float &call, float &put, float stock, float strike, float years)
{
    float root = __fdividef(1, rsqrtf(years));
    float d1 = __fdividef(__logf(stock / strike) + (RISK_FREE_RATE + 0.5f * VOLATILITY * VOLATILITY) * years,
                          VOLATILITY * root);
    float n1 = normal_distribution(d1);
    float n2 = normal_distribution(d1 - VOLATILITY * root);
    float discounted = strike * __expf(-RISK_FREE_RATE * years);
    call = stock * n1 - discounted * n2;
    put = discounted * (1 - n2) - stock * (1 - n1);
}

__launch_bounds__(block_size) __global__
    void black_scholes(float2 *__restrict__ call, float2 *__restrict__ put, const float2 *__restrict__ stock,
                       const float2 *__restrict__ strike, const float2 *__restrict__ years, int nr_pairs)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= nr_pairs) {
        return;
    }
    float2 calls, puts;
    price(calls.x, puts.x, stock[i].x, strike[i].x, years[i].x);
    price(calls.y, puts.y, stock[i].y, strike[i].y, years[i].y);
    call[i] = calls;
    put[i] = puts;
}

static double prepare(size_t size)
{
    const float least[NR_INPUTS] = {5, 1, 0.25f}, most[NR_INPUTS] = {30, 100, 10};
    uint64_t seed = 5347;
    if (size % 2 || size > (1u << 30)) {
        benchmark_fail("the size %zu is not an even number up to 2^30", size);
    }
    nr_options = size;
    for (int kind = 0; kind < NR_INPUTS; kind++) {
        inputs[kind] = (float *)benchmark_allocate(size, sizeof(float));
        for (size_t i = 0; i < size; i++) {
            inputs[kind][i] = least[kind] + (most[kind] - least[kind]) * benchmark_random_float(&seed);
        }
        if (benchmark_uses_device()) {
            BENCHMARK_CUDA(cudaMalloc(&d_inputs[kind], size * sizeof(float)));
            BENCHMARK_CUDA(cudaMemcpy(d_inputs[kind], inputs[kind], size * sizeof(float), cudaMemcpyHostToDevice));
        }
    }
    for (int kind = 0; kind < NR_OUTPUTS; kind++) {
        loops[kind] = (float *)benchmark_allocate(size, sizeof(float));
        fetched[kind] = (float *)benchmark_allocate(size, sizeof(float));
        if (benchmark_uses_device()) {
            BENCHMARK_CUDA(cudaMalloc(&d_outputs[kind], size * sizeof(float)));
        }
    }
    return 1e-6 * size;
}

static void device_round()
{
    int nr_pairs = nr_options / 2;
    black_scholes<<<(nr_pairs + block_size - 1) / block_size, block_size>>>(
        (float2 *)d_outputs[CALL], (float2 *)d_outputs[PUT], (float2 *)d_inputs[STOCK], (float2 *)d_inputs[STRIKE],
        (float2 *)d_inputs[YEARS], nr_pairs);
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaDeviceSynchronize());
}

static void loops_round()
{
    black_scholes_loops(loops[CALL], loops[PUT], inputs[STOCK], inputs[STRIKE], inputs[YEARS], nr_options);
}

static void fetch()
{
    for (int kind = 0; kind < NR_OUTPUTS; kind++) {
        BENCHMARK_CUDA(cudaMemcpy(fetched[kind], d_outputs[kind], nr_options * sizeof(float), cudaMemcpyDeviceToHost));
    }
}

/* The fast exponential is wrong by up to 1e-6 of itself; that is multiplied by a stock price of up to 30. */
static int check(char *why, size_t why_size)
{
    return benchmark_compare_floats("call", fetched[CALL], loops[CALL], nr_options, 1e-4, why, why_size) ||
           benchmark_compare_floats("put", fetched[PUT], loops[PUT], nr_options, 1e-4, why, why_size);
}

static void release()
{
    for (int kind = 0; kind < NR_INPUTS; kind++) {
        if (benchmark_uses_device()) {
            BENCHMARK_CUDA(cudaFree(d_inputs[kind]));
        }
        free(inputs[kind]);
    }
    for (int kind = 0; kind < NR_OUTPUTS; kind++) {
        if (benchmark_uses_device()) {
            BENCHMARK_CUDA(cudaFree(d_outputs[kind]));
        }
        free(loops[kind]);
        free(fetched[kind]);
    }
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        .name = "BlackScholes",
        .summary = "prices of European options in closed form",
        .unit = "Moptions/s",
        .default_size = 2000000,
        .size_help = "options, an even number",
        .prepare = prepare,
        .device_round = device_round,
        .loops_round = loops_round,
        .fetch = fetch,
        .check = check,
        .release = release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
