/*
 * LavaMD of Rodinia on GLoop: many short blocks, one for each box, without a scheduling point in them. Plain all of
 * them are one launch; split a launch is of as many as the device holds at a time; by gloop blocks end between
 * scheduling points.
 *
 * Kernel, boxes and loops are those of benchmarks/programs/lavaMD.cu.
 */
#include "lavaMD.cuh"

#include "lavaMD_space.cuh"
#include "port.cuh"

static __global__ void lavamd_plain(struct lavamd_space boxes, int first)
{
    lavamd_block(boxes, first + blockIdx.x);
}

static void plain_round(void)
{
    copy_in();
    port_time([] { lavamd_plain<<<space.device.nr_boxes, LAVAMD_THREADS>>>(space.device, 0); });
    copy_out();
}

static void split_round(void)
{
    copy_in();
    int nr_at_once = port_resident((const void *)lavamd_plain, LAVAMD_THREADS, 0);
    port_time([=] {
        for (int first = 0; first < space.device.nr_boxes; first += nr_at_once) {
            int nr = std::min(nr_at_once, space.device.nr_boxes - first);
            lavamd_plain<<<nr, LAVAMD_THREADS>>>(space.device, first);
        }
    });
    copy_out();
}

static void launch_on_gloop(void)
{
    struct lavamd_space device = space.device;
    port_host().launch(device.nr_boxes, LAVAMD_THREADS,
                       [=] __device__(gloop::DeviceLoop<> *loop) { lavamd_block(device, loop->logicalBlockIdx().x); });
}

static void gloop_round(void)
{
    copy_in();
    port_time(launch_on_gloop);
    copy_out();
}

int main(int argc, char **argv)
{
    struct port port = {{"lavaMD", "forces between the particles of neighbouring boxes", "Mpairs/s", 0,
                         "boxes along the edge of a cube of boxes", prepare, NULL, loops_round, NULL, check, NULL,
                         release},
                        3,
                        40,
                        {plain_round, split_round, gloop_round}};
    return port_main(&port, argc, argv);
}
