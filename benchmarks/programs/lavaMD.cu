/*
 * lavaMD of Rodinia, written anew: one long kernel between the copies of its inputs and of its result. In single
 * precision, as the original's OpenCL version; its CUDA version is found in either.
 */
#include "lavaMD.cuh"

#include "lavaMD_space.cuh"

static __global__ void act_on_boxes(struct lavamd_space space)
{
    lavamd_block(space, blockIdx.x);
}

static void device_round(void)
{
    copy_in();
    act_on_boxes<<<space.device.nr_boxes, LAVAMD_THREADS>>>(space.device);
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaDeviceSynchronize());
    copy_out();
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        "lavaMD",
        "forces between the particles of neighbouring boxes",
        "Mpairs/s",
        3,
        "boxes along the edge of a cube of boxes",
        prepare,
        device_round,
        loops_round,
        NULL,
        check,
        NULL,
        release,
    };
    return benchmark_main(&benchmark, argc, argv);
}
