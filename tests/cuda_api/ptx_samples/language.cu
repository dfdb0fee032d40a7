// C++ as kernels use it: templates, virtual functions, function pointers, recursion, initialised variables of every
// kind, inline PTX.
#include <cassert>
#include <cstdio>

struct Shape {
    __device__ virtual float area(float) const = 0;
};
struct Circle : Shape {
    __device__ float area(float r) const override { return 3.14f * r * r; }
};
struct Square : Shape {
    __device__ float area(float r) const override { return r * r; }
};

struct Big {
    double v[5];
};

typedef int (*Operation)(int, int);

__constant__ float weights[4] = {1.f, 2.5f, -3.f, 4e-10f};
__constant__ double extremes[] = {1e300, -0.0};
__device__ int counter = 7;
__device__ int *counter_address = &counter;
__device__ const char *text = "quote \" backslash \\ newline \n";
__device__ __managed__ long long managed = -5;
__device__ struct {
    char c;
    short s;
    int *p;
    double d;
} mixed = {'a', -3, &counter, 2.5};
__device__ int table[2][3] = {{1, 2, 3}, {4}};
extern __shared__ double dynamic[];

__device__ __noinline__ int add(int a, int b)
{
    return a + b;
}
__device__ __noinline__ int multiply(int a, int b)
{
    return a * b;
}
__device__ Operation operations[] = {add, multiply};

__device__ int fibonacci(int n)
{
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__device__ __noinline__ Big shift(Big big, float4 by)
{
    big.v[0] += by.x;
    big.v[4] -= by.w;
    return big;
}

template <typename T, int N>
__global__ void __launch_bounds__(256, 2)
    tile(T *x, const T *__restrict__ y, Big by_value, const __grid_constant__ Big constant)
{
    __shared__ T cells[N];
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    cells[threadIdx.x % N] = y[i] * (T)weights[i & 3];
    __syncthreads();
    for (int j = 0; j < N; j++) {
        x[i] += cells[j] + (T)by_value.v[j % 5] + (T)constant.v[j % 5];
    }
}
template __global__ void tile<float, 8>(float *, const float *, Big, const __grid_constant__ Big);
template __global__ void tile<unsigned char, 3>(unsigned char *, const unsigned char *, Big,
                                                const __grid_constant__ Big);

__global__ void calls(int *x, int which, Shape **shapes)
{
    Shape *made = new Circle;
    Big big = {};
    int *heap = (int *)malloc(which * 4);

    x[0] = operations[which](x[1], x[2]) + fibonacci(which) + *counter_address + table[which][1] + (int)mixed.d;
    x[3] = (int)shapes[which]->area(2.f) + (int)made->area(1.f);
    big = shift(big, make_float4(x[0], x[1], x[2], x[3]));
    x[4] = (int)(big.v[0] + big.v[4]) + (int)managed;
    printf("%s %d %f\n", text, which, extremes[which & 1]);
    assert(x[0] != 12);
    heap[0] = which;
    x[5] = heap[0];
    free(heap);
    delete made;
}

__global__ void make(Shape **shapes, int which)
{
    if (which) {
        *shapes = new Circle;
    } else {
        *shapes = new Square;
    }
}

__global__ void choose(int *x, int k)
{
    switch (k) {
    case 0:
        x[0] = 5;
        break;
    case 1:
        x[1] = x[2] * 3;
        break;
    case 2:
        x[2] ^= 1;
        break;
    case 3:
        x[3] /= 7;
        break;
    case 4:
        atomicAdd(x, 3);
        break;
    case 5:
        x[5] = (int)clock64();
        break;
    case 6:
        __trap();
    default:
        __brkpt();
    }
}

__global__ void local_array(int *x, int n)
{
    int a[64];

    for (int i = 0; i < n; i++) {
        a[x[i] & 63] = i;
    }
    dynamic[threadIdx.x] = a[n & 63];
    __syncthreads();
    x[0] = (int)dynamic[threadIdx.x ^ 1];
    __nanosleep(20);
}

__global__ void inline_ptx(unsigned *x, float *f)
{
    unsigned r;

    asm volatile("{ .reg .pred p; .reg .u32 t<3>; setp.lt.u32 p, %1, 0x10U; @!p mov.u32 t0, (3+4)*2;"
                 " @p mov.u32 t0, 017; mad.lo.u32 %0, t0, %1, 0b11; }"
                 : "=r"(r)
                 : "r"(x[0]));
    asm volatile("vabsdiff4.u32.u32.u32.add %0, %1, %2, %0;" : "+r"(r) : "r"(x[1]), "r"(x[2]));
    asm("lop3.b32 %0, %0, %1, %2, 0xe8;" : "+r"(r) : "r"(x[1]), "r"(x[2]));
    asm("{.reg .pred p, q; setp.eq.and.f32 p|q, %1, 1.5, !p; selp.u32 %0, 1, 2, q;}" : "+r"(r) : "f"(f[0]));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(x));
    x[0] = r;
    x[1] = __shfl_xor_sync(~0u, r, 3) + __ballot_sync(~0u, r & 1) + __activemask() + __match_any_sync(~0u, r);
}
