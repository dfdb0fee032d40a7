/* Calls of every kind, local arrays, constants, relocated globals, 64-bit and double arithmetic, the library's slow
 * paths. */
#include <cmath>
#include <cuda_fp16.h>

#include "check.cuh"

__constant__ int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__device__ int table[4] = {10, 20, 30, 40};
__device__ int *middle = &table[2];
__device__ double accumulated;

__device__ __noinline__ int add(int a, int b)
{
    return a + b;
}
__device__ __noinline__ int multiply(int a, int b)
{
    return a * b;
}
__device__ __noinline__ int subtract(int a, int b)
{
    return a - b;
}
typedef int (*operation)(int, int);
__device__ operation operations[3] = {add, multiply, subtract};

__device__ __noinline__ int fibonacci(int n)
{
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

struct pair {
    long long first;
    float second;
    char third[5];
};

__device__ __noinline__ pair swapped(pair in)
{
    pair out = {
        (long long)in.second, (float)in.first, {in.third[4], in.third[3], in.third[2], in.third[1], in.third[0]}};

    return out;
}

struct shape {
    __device__ virtual int area() const = 0;
};
struct square : shape {
    int side;
    __device__ square(int s) : side(s) {}
    __device__ int area() const override { return side * side; }
};
struct strip : shape {
    int length;
    __device__ strip(int l) : length(l) {}
    __device__ int area() const override { return length; }
};

__global__ void calls(int *out, pair argument)
{
    int i = threadIdx.x;
    int *row = out + 8 * i;

    row[0] = operations[i % 3](i, 7);
    row[1] = fibonacci(i % 15);
    pair result = swapped(argument);
    row[2] = (int)result.first + result.third[0];
    row[3] = (int)result.second + *middle;
    shape *made = i & 1 ? (shape *)new square(i) : (shape *)new strip(i);
    row[4] = made ? made->area() : -1;
    delete made;
    row[5] = primes[i % 8];
    int stack[16];
    for (int k = 0; k < 16; k++) {
        stack[k] = k * i;
    }
    int at = i % 16;
    for (int k = 0; k < 5; k++) {
        at = (stack[at] + 1) & 15;
    }
    row[6] = at;
    switch (i % 6) {
    case 0:
        row[7] = 3;
        break;
    case 1:
        row[7] = i * i;
        break;
    case 2:
        row[7] = fibonacci(4);
        break;
    case 3:
        row[7] = -i;
        break;
    case 4:
        row[7] = primes[3];
        break;
    default:
        row[7] = 1000;
        break;
    }
}

__global__ void mathematics(const double *in, double *out, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= count) {
        return;
    }
    double x = in[i];
    double *row = out + 12 * i;
    row[0] = exp(x / 40);
    row[1] = log(fabs(x) + 1);
    row[2] = sin(x * 1000);
    row[3] = pow(fabs(x), 1.7);
    row[4] = sinf((float)x * 100000);
    row[5] = expf((float)x / 3);
    row[6] = tanh(x / 10);
    row[7] = __half2float(__hfma(__float2half((float)x), __float2half(0.5f), __float2half(1.0f)));
    row[8] = (double)((long long)(x * 1e9) / 12345 % 777);
    row[9] = powf(fabsf((float)x), 0.3f);
    row[10] = cbrt(x);
    row[11] = rint(x * 3) + floor(x) - ceil(x * 2) + fmod(x, 3.25);
    atomicAdd(&accumulated, 1.5);
}

int main()
{
    const int threads = 64, count = 1000;
    int *out = managed<int>(8 * threads);
    pair argument = {12, 5.5f, {'a', 'b', 'c', 'd', 'e'}};

    calls<<<1, threads>>>(out, argument);
    int *rows = fetched(out, 8 * threads), primes_here[] = {2, 3, 5, 7, 11, 13, 17, 19}, fibonaccis[15] = {0, 1};
    for (int i = 2; i < 15; i++) {
        fibonaccis[i] = fibonaccis[i - 1] + fibonaccis[i - 2];
    }
    for (int i = 0; i < threads; i++) {
        int *row = rows + 8 * i, at = i % 16;
        int choices[] = {3, i * i, 3, -i, 7, 1000};

        for (int k = 0; k < 5; k++) {
            at = (at * i + 1) & 15;
        }
        expect("by address", i, row[0], i % 3 == 0 ? i + 7 : i % 3 == 1 ? i * 7 : i - 7);
        expect("recursion", i, row[1], fibonaccis[i % 15]);
        expect("structure", i, row[2], 5 + 'e');
        expect("relocated", i, row[3], 12 + 30);
        expect("virtual", i, row[4], i & 1 ? i * i : i);
        expect("constant", i, row[5], primes_here[i % 8]);
        expect("local", i, row[6], at);
        expect("switch", i, row[7], choices[i % 6]);
    }

    double host[count], *in = managed<double>(count), *results = managed<double>(12 * count);
    for (int i = 0; i < count; i++) {
        host[i] = (i - 400) * 0.3712345;
    }
    OK(cudaMemcpy(in, host, sizeof(host), cudaMemcpyHostToDevice));
    mathematics<<<(count + 95) / 96, 96>>>(in, results, count);
    double *got = fetched(results, 12 * count);
    for (int i = 0; i < count; i++) {
        double x = host[i], *row = got + 12 * i;
        float f = (float)x;

        expect("exp", i, row[0], exp(x / 40), exp(x / 40) * 1e-15);
        expect("log", i, row[1], log(fabs(x) + 1), 1e-15 * 8);
        expect("sin", i, row[2], sin(x * 1000), 1e-15);
        expect("pow", i, row[3], pow(fabs(x), 1.7), pow(fabs(x), 1.7) * 1e-15);
        expect("sinf", i, row[4], sin((double)(f * 100000)), 1.5e-7);
        expect("expf", i, row[5], expf(f / 3), expf(f / 3) * 3e-7);
        expect("tanh", i, row[6], tanh(x / 10), 1e-15);
        expect("half", i, row[7], x * 0.5 + 1, (fabs(x) + 1) * 1e-3);
        expect("integer", i, row[8], (double)((long long)(x * 1e9) / 12345 % 777));
        expect("powf", i, row[9], pow(fabs((double)f), 0.3f), pow(fabs((double)f), 0.3f) * 1e-6);
        expect("cbrt", i, row[10], cbrt(x), 1e-14);
        expect("whole", i, row[11], rint(x * 3) + floor(x) - ceil(x * 2) + fmod(x, 3.25), 1e-12);
    }
    double sum;
    OK(cudaMemcpyFromSymbol(&sum, accumulated, sizeof(sum)));
    expect("sum", 0, sum, 1.5 * count);
    return finish();
}
