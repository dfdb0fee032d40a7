/*
 * A long launch whose blocks tell the host how many of them have ended: in the device's memory each, in memory of the
 * host only now and then, as the way there and back for every block would take longer than the blocks do.
 *
 * Wrong by a fraction of what it tells in between: blocks that tell it at the same moment may do so in either order.
 */
#ifndef BENCHMARKS_SPACE_TELLING_CUH
#define BENCHMARKS_SPACE_TELLING_CUH

struct telling {
    unsigned long long *nr_ended;       /* on the device */
    volatile unsigned long long *heard; /* on the host */
    unsigned every;                     /* so many blocks */
};

/* `nr_blocks` over and over. */
template <class View>
__global__ void __launch_bounds__(THREADS) repeated(View view, unsigned nr_blocks, struct telling telling)
{
    view.block(blockIdx.x % nr_blocks, 0);
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned long long nr_ended = atomicAdd(telling.nr_ended, 1) + 1;
        if (nr_ended % telling.every == 0) {
            *telling.heard = nr_ended;
        }
    }
}

#endif
