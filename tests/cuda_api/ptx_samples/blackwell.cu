// What compute capability 10.0 added: tensor memory and floats of 8, 6 and 4 bits.
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

__global__ void tensor_memory(unsigned *out, unsigned long long descriptor, float *f)
{
    __shared__ unsigned base;
    unsigned at = (unsigned)__cvta_generic_to_shared(&base), r0, r1, r2, r3;

    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 128;" ::"r"(at));
    __syncthreads();
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0;"
                 " tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %1, %2, {%4, %4, %4, %4}, p; }" ::"r"(base),
                 "l"(descriptor), "r"(out[0]), "r"(out[1]), "r"(0));
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(at));
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x1.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
                 : "r"(base));
    asm volatile("tcgen05.wait::ld.sync.aligned;");
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 128;" ::"r"(base));
    out[0] = r0 ^ r1 ^ r2 ^ r3;
    f[3] = float(__nv_fp4_e2m1(f[0])) + float(__nv_fp6_e3m2(f[1])) + float(__nv_fp8_e8m0(f[2]));
    f[4] = __ffma2_rn(make_float2(f[0], f[1]), make_float2(f[0], f[1]), make_float2(f[0], f[1])).y;
}
