// Tensor cores of compute capability 8.0, and 16-bit and 8-bit floating point.
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <mma.h>

using namespace nvcuda;

template <typename Element, typename Sum, typename Fragment, int M, int N, int K>
__device__ void multiply(const Element *a, const Element *b, Sum *c)
{
    wmma::fragment<wmma::matrix_a, M, N, K, Fragment, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, Fragment, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> fc;

    wmma::fill_fragment(fc, Sum(0));
    wmma::load_matrix_sync(fa, a, K);
    wmma::load_matrix_sync(fb, b, K);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, N, wmma::mem_row_major);
}

__global__ void halves(const half *h, half *hc, float *c, const float *f, const __nv_bfloat16 *b)
{
    multiply<half, float, half, 16, 16, 16>(h, h, c);
    multiply<half, half, half, 32, 8, 16>(h, h, hc);
    multiply<float, float, wmma::precision::tf32, 16, 16, 8>(f, f, c);
    multiply<__nv_bfloat16, float, __nv_bfloat16, 16, 16, 16>(b, b, c);
}

__global__ void others(const signed char *s, int *si, const double *d, double *dd)
{
    multiply<signed char, int, signed char, 8, 32, 16>(s, s, si);
    multiply<double, double, double, 8, 8, 4>(d, d, dd);
}

__global__ void inline_ptx(unsigned *a, float *c)
{
    extern __shared__ char cells[];
    unsigned r0, r1, at = (unsigned)__cvta_generic_to_shared(cells);

    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%4,%5}, {%6,%7}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]));
    asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
                 " {%0,%1,%2,%3}, {%4,%5,%4,%5}, {%6,%7,%6,%7}, {%0,%1,%2,%3}, %8, 0x0;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r0), "=r"(r1) : "r"(at));
    a[0] = r0 ^ __reduce_add_sync(~0u, r1);
}

__global__ void small_floats(half *h, __nv_fp8_e4m3 *q, const float *f)
{
    half2 pair = h2sin(*(half2 *)h);

    h[0] = hrsqrt(__hadd(__low2half(pair), __high2half(pair)));
    q[0] = __nv_fp8_e4m3(f[0]);
    h[1] = half(q[1]);
    atomicAdd((half2 *)h, pair);
}
