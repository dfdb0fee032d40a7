// What compute capability 9.0 added: tensor maps, bulk copies, warp group products, clusters' shared memory.
#include <cuda.h>
#include <cuda/barrier>
#include <cuda/ptx>
#include <utility>

using Barrier = cuda::barrier<cuda::thread_scope_block>;
namespace bulk = cuda::device::experimental;

__global__ void tensor_map(const __grid_constant__ CUtensorMap map, int x, int y, float *out)
{
    __shared__ alignas(128) float cells[64][64];
    __shared__ Barrier arrived;

    if (threadIdx.x == 0) {
        init(&arrived, blockDim.x);
        bulk::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk::cp_async_bulk_tensor_2d_global_to_shared(cells, &map, x, y, arrived);
        arrived.wait(cuda::device::barrier_arrive_tx(arrived, 1, sizeof(cells)));
        bulk::cp_async_bulk_tensor_2d_shared_to_global(&map, x, y, cells);
        bulk::cp_async_bulk_commit_group();
        bulk::cp_async_bulk_wait_group_read<0>();
        cuda::ptx::cp_reduce_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, cuda::ptx::op_add, out,
                                        &cells[0][0], 128u);
    }
}

__global__ void inline_ptx(float *c, unsigned long long descriptor, unsigned *u)
{
    float a = c[0], b = c[1], d = c[2], e = c[3];
    unsigned p, s;

    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0;"
                 " wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %4, p, 1, -1, 0, 1; }"
                 : "+f"(a), "+f"(b), "+f"(d), "+f"(e)
                 : "l"(descriptor), "r"(u[0]));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;");
    asm volatile("{ .reg .b32 r; .reg .pred p; elect.sync r|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(p));
    asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(s) : "r"(p));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(s), "r"(p),
                 "r"(s + 64));
    asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;");
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(descriptor));
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %1};" ::"r"(s), "r"(p));
    asm volatile("multimem.red.relaxed.sys.global.add.f32 [%0], %1;" ::"l"(descriptor), "f"(a));
    asm volatile("{ .reg .pred w; mbarrier.try_wait.parity.shared::cta.b64 w, [%0], %1, 0x989680; }" ::"r"(s), "r"(p));
    asm volatile("ld.global.L1::evict_last.L2::cache_hint.v4.f32 {%0, _, %1, _}, [%2+-16], %3;"
                 : "+f"(a), "+f"(b)
                 : "l"(c), "l"(descriptor));
    c[0] = a + b + d + e;
}
