// Asynchronous copies, barriers in memory, and atomics with an order and a scope.
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>

__global__ void pipeline(const float4 *in, float4 *out, int nr)
{
    __shared__ float4 stage[2][64];
    auto pipe = cuda::make_pipeline();

    for (int i = 0; i < nr; i++) {
        pipe.producer_acquire();
        cuda::memcpy_async(&stage[i & 1][threadIdx.x], &in[i * 64 + threadIdx.x], cuda::aligned_size_t<16>(16), pipe);
        pipe.producer_commit();
        cuda::pipeline_consumer_wait_prior<1>(pipe);
        __syncthreads();
        out[i] = stage[(i + 1) & 1][63 - threadIdx.x];
        pipe.consumer_release();
    }
}

__global__ void barrier(const int *in, int *out)
{
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::barrier<cuda::thread_scope_block> arrived;
    __shared__ int cells[256];

    if (threadIdx.x == 0) {
        init(&arrived, blockDim.x);
    }
    __syncthreads();
    cuda::memcpy_async(cells + threadIdx.x, in + threadIdx.x, 4, arrived);
    arrived.arrive_and_wait();
    out[threadIdx.x] = cells[threadIdx.x ^ 1];
    cuda::atomic_ref<int, cuda::thread_scope_device>(out[0]).fetch_max(5, cuda::memory_order_release);
    cuda::atomic_ref<int, cuda::thread_scope_system>(out[1]).fetch_xor(3, cuda::memory_order_relaxed);
    cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_block);
}
