/*
 * What programs of lavaMD have in common: boxes and particles on the host and on the device, and the comparison with
 * the loops.
 */
#ifndef BENCHMARKS_PROGRAMS_LAVAMD_SPACE_CUH
#define BENCHMARKS_PROGRAMS_LAVAMD_SPACE_CUH

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#include "common.h"
#include "lavaMD.h"

/*
 * A force is a sum of up to 2,700 terms, one after the other. The device adds each product in one rounding (fma), the
 * loops in two, and their exponential functions differ by 2 units in the last place, so that each step of the sum may
 * differ by about 2^-24 of what the sum of all terms' sizes has come to. Such roundings are independent and grow with
 * the root of their number: 52 * 2^-24 = 3e-6 of the sum of all sizes, which the potential is, as its terms have one
 * sign and are no smaller than half of those of a force. A pair left out is 4e-5 of it or more.
 */
static const double TOLERANCE = 5e-6;

static struct {
    struct lavamd_space loops, device;
    struct lavamd_vector *device_forces; /* on the host */
    size_t nr_particles;
} space;

static size_t boxes_bytes(void)
{
    return space.loops.nr_boxes * sizeof(struct lavamd_box);
}

static size_t vectors_bytes(void)
{
    return space.nr_particles * sizeof(struct lavamd_vector);
}

static size_t charges_bytes(void)
{
    return space.nr_particles * sizeof(float);
}

/* All boxes of a cube of boxes that touch the one at (x, y, z), in the order of their numbers. */
static void find_neighbours(struct lavamd_box *boxes, int edge, int x, int y, int z)
{
    struct lavamd_box *home = boxes + (z * edge + y) * edge + x;
    for (int at = 0; at < 27; at++) {
        int other_x = x + at % 3 - 1, other_y = y + at / 3 % 3 - 1, other_z = z + at / 9 - 1;
        bool is_in_cube =
            other_x >= 0 && other_x < edge && other_y >= 0 && other_y < edge && other_z >= 0 && other_z < edge;
        int other = (other_z * edge + other_y) * edge + other_x;
        if (is_in_cube && boxes + other != home) {
            home->neighbours[home->nr_neighbours++] = other;
        }
    }
}

/* Returns how many pairs of boxes act on each other, each box on itself included. */
static size_t generate_boxes(struct lavamd_box *boxes, int edge)
{
    size_t nr_pairs = 0;
    for (int box = 0; box < edge * edge * edge; box++) {
        find_neighbours(boxes, edge, box % edge, box / edge % edge, box / edge / edge);
        nr_pairs += 1 + boxes[box].nr_neighbours;
    }
    return nr_pairs;
}

static void generate_particles(struct lavamd_vector *particles, float *charges)
{
    uint64_t random = 1;
    auto draw = [&] { return 0.1f + 0.9f * benchmark_random_float(&random); };
    for (size_t at = 0; at < space.nr_particles; at++) {
        float x = draw(), y = draw(), z = draw();
        particles[at] = {(x * x + y * y + z * z) / 2, x, y, z};
        charges[at] = draw();
    }
}

static void prepare_device(void)
{
    space.device_forces = (struct lavamd_vector *)benchmark_allocate(space.nr_particles, sizeof(*space.device_forces));
    space.device.nr_boxes = space.loops.nr_boxes;
    BENCHMARK_CUDA(cudaMalloc(&space.device.boxes, boxes_bytes()));
    BENCHMARK_CUDA(cudaMalloc(&space.device.particles, vectors_bytes()));
    BENCHMARK_CUDA(cudaMalloc(&space.device.charges, charges_bytes()));
    BENCHMARK_CUDA(cudaMalloc(&space.device.forces, vectors_bytes()));
}

static double prepare(size_t size)
{
    if (size > 256) {
        benchmark_fail("at most 256 boxes along the edge");
    }
    space.loops.nr_boxes = (int)(size * size * size);
    space.nr_particles = (size_t)space.loops.nr_boxes * LAVAMD_PARTICLES;
    struct lavamd_box *boxes = (struct lavamd_box *)benchmark_allocate(space.loops.nr_boxes, sizeof(*boxes));
    size_t nr_box_pairs = generate_boxes(boxes, (int)size);
    struct lavamd_vector *particles =
        (struct lavamd_vector *)benchmark_allocate(space.nr_particles, sizeof(*particles));
    float *charges = (float *)benchmark_allocate(space.nr_particles, sizeof(*charges));
    generate_particles(particles, charges);
    space.loops.boxes = boxes;
    space.loops.particles = particles;
    space.loops.charges = charges;
    space.loops.forces = (struct lavamd_vector *)benchmark_allocate(space.nr_particles, sizeof(*space.loops.forces));
    if (benchmark_uses_device()) {
        prepare_device();
    }
    return (double)nr_box_pairs * LAVAMD_PARTICLES * LAVAMD_PARTICLES * 1e-6;
}

static void copy_in(void)
{
    const struct lavamd_space *host = &space.loops, *device = &space.device;
    BENCHMARK_CUDA(cudaMemcpy((void *)device->boxes, host->boxes, boxes_bytes(), cudaMemcpyHostToDevice));
    BENCHMARK_CUDA(cudaMemcpy((void *)device->particles, host->particles, vectors_bytes(), cudaMemcpyHostToDevice));
    BENCHMARK_CUDA(cudaMemcpy((void *)device->charges, host->charges, charges_bytes(), cudaMemcpyHostToDevice));
}

static void copy_out(void)
{
    BENCHMARK_CUDA(cudaMemcpy(space.device_forces, space.device.forces, vectors_bytes(), cudaMemcpyDeviceToHost));
}

static void loops_round(void)
{
    lavamd_loops(&space.loops);
}

static bool is_close(float device, float loops, float potential)
{
    return fabs((double)device - loops) <= TOLERANCE * potential;
}

static int check(char *why, size_t why_size)
{
    benchmark_digest(space.device_forces, space.nr_particles * sizeof(*space.device_forces));
    for (size_t at = 0; at < space.nr_particles; at++) {
        struct lavamd_vector device = space.device_forces[at], loops = space.loops.forces[at];
        if (is_close(device.v, loops.v, loops.v) && is_close(device.x, loops.x, loops.v) &&
            is_close(device.y, loops.y, loops.v) && is_close(device.z, loops.z, loops.v)) {
            continue;
        }
        snprintf(why, why_size, "the force on particle %zu is %g %g %g %g on the device and %g %g %g %g in the loops",
                 at, device.v, device.x, device.y, device.z, loops.v, loops.x, loops.y, loops.z);
        return 1;
    }
    return 0;
}

static void release(void)
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree((void *)space.device.boxes));
        BENCHMARK_CUDA(cudaFree((void *)space.device.particles));
        BENCHMARK_CUDA(cudaFree((void *)space.device.charges));
        BENCHMARK_CUDA(cudaFree(space.device.forces));
    }
    free((void *)space.loops.boxes);
    free((void *)space.loops.particles);
    free((void *)space.loops.charges);
    free(space.loops.forces);
    free(space.device_forces);
}

#endif
