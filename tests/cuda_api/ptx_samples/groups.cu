// Cooperative groups: warps, grids and clusters.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

__global__ void grid(int *x)
{
    auto whole = cg::this_grid();
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    auto active = cg::coalesced_threads();
    int v = cg::reduce(tile, x[threadIdx.x], cg::plus<int>());

    v += cg::inclusive_scan(tile, v) + cg::labeled_partition(active, v & 1).size();
    whole.sync();
    x[whole.thread_rank()] = v + tile.shfl_down(v, 1) + tile.any(v > 3);
}

#if defined(CLUSTERS)
__global__ void __cluster_dims__(2, 1, 1) cluster(int *x)
{
    __shared__ int cells[32];
    auto cluster = cg::this_cluster();
    int *far = cluster.map_shared_rank(cells, cluster.block_rank() ^ 1);

    cells[threadIdx.x] = x[threadIdx.x];
    cluster.sync();
    atomicAdd(&far[threadIdx.x], 1);
    auto token = cluster.barrier_arrive();
    cluster.barrier_wait(static_cast<decltype(token) &&>(token));
    x[threadIdx.x] = far[threadIdx.x];
}
#endif
