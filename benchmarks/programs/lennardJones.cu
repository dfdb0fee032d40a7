/*
 * lennardJones stands for programs of molecular dynamics such as NAMD: in each step a kernel for the forces between two
 * small ones that move particles on, and after some steps the host, which reads energies, places and velocities, lets
 * particles migrate to the cells where they are by now, and brings them back in their new order.
 */
#include "lennardJones.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#include "common.h"

enum { NR_READINGS = LENNARD_JONES_CYCLES + 1 };

/*
 * Of the energy of a particle, 4.8. With steps of 0.005 velocity Verlet lets it rise and fall by some 0.001 as the
 * crystal of the start melts; forces that are 4 % too small move it by 0.04.
 */
static const double MOST_DRIFT = 0.01;

/* Who moves particles on: the device or the loops. `results` are places, then velocities, in the order of the start. */
struct side {
    void (*bring)(void);
    void (*act)(void);
    void (*integrate)(bool is_moving);
    void (*read_energies)(void);
    void (*fetch)(void);
    struct lennard_jones_vector *results;
    double *readings; /* of the energy of a particle, in the mean */
};

static struct {
    size_t nr_particles, nr_cells, nr_blocks;
    struct lennard_jones_vector *initial_places, *initial_velocities;
    struct lennard_jones_particles host, device;
    int32_t *begins, *cells, *numbers; /* numbers are those of the start */
    struct lennard_jones_vector *unsorted_places, *unsorted_velocities;
    int32_t *unsorted_numbers;
    struct lennard_jones_vector *device_results, *loops_results;
    double device_readings[NR_READINGS], loops_readings[NR_READINGS];
} fluid;

/*
 * A product that goes into a sum is rounded by itself, by __fmul_rn, as in the loops, unless it is exact: so results
 * are equal to the bit. Collisions would make more and more of a difference.
 */
static __device__ float square_of(float x, float y, float z)
{
    return __fmul_rn(x, x) + __fmul_rn(y, y) + __fmul_rn(z, z);
}

/* How many cubes further on the cell beyond an edge is one of this cube; it is put back to where it is here. */
static __device__ int wrap(int *cell, int edge)
{
    int cubes = *cell < 0 ? -1 : *cell >= edge;
    *cell -= cubes * edge;
    return cubes;
}

static __global__ void act(struct lennard_jones_particles particles)
{
    int particle = blockIdx.x * LENNARD_JONES_BLOCK + threadIdx.x;
    if (particle >= particles.nr_particles) {
        return;
    }
    const int edge = particles.edge, cell = particles.cells[particle];
    const float cube = edge * LENNARD_JONES_CELL_EDGE;
    const struct lennard_jones_vector place = particles.places[particle];
    struct lennard_jones_vector force = {0, 0, 0, 0};
    for (int at = 0; at < 27; at++) {
        int x = cell % edge + at % 3 - 1, y = cell / edge % edge + at / 3 % 3 - 1, z = cell / edge / edge + at / 9 - 1;
        float home_x = place.x - wrap(&x, edge) * cube;
        float home_y = place.y - wrap(&y, edge) * cube;
        float home_z = place.z - wrap(&z, edge) * cube;
        const int32_t *begin = particles.begins + (z * edge + y) * edge + x;
        for (int other = begin[0], end = begin[1]; other < end; other++) {
            const struct lennard_jones_vector there = particles.places[other];
            float apart_x = home_x - there.x, apart_y = home_y - there.y, apart_z = home_z - there.z;
            float square = square_of(apart_x, apart_y, apart_z);
            if (square >= LENNARD_JONES_CUTOFF * LENNARD_JONES_CUTOFF || other == particle) {
                continue;
            }
            float inverse = 1 / square;
            float sixth = __fmul_rn(__fmul_rn(inverse, inverse), inverse);
            float strength = 24 * inverse * sixth * (2 * sixth - 1);
            force.x += __fmul_rn(strength, apart_x);
            force.y += __fmul_rn(strength, apart_y);
            force.z += __fmul_rn(strength, apart_z);
            force.potential += 2 * __fmul_rn(sixth, sixth - 1) - LENNARD_JONES_AT_CUTOFF / 2;
        }
    }
    particles.forces[particle] = force;
}

static __global__ void integrate(struct lennard_jones_particles particles, bool is_moving)
{
    int particle = blockIdx.x * LENNARD_JONES_BLOCK + threadIdx.x;
    if (particle >= particles.nr_particles) {
        return;
    }
    const struct lennard_jones_vector force = particles.forces[particle];
    struct lennard_jones_vector velocity = particles.velocities[particle];
    velocity.x += __fmul_rn(LENNARD_JONES_STEP / 2, force.x);
    velocity.y += __fmul_rn(LENNARD_JONES_STEP / 2, force.y);
    velocity.z += __fmul_rn(LENNARD_JONES_STEP / 2, force.z);
    particles.velocities[particle] = velocity;
    if (is_moving) {
        struct lennard_jones_vector place = particles.places[particle];
        place.x += __fmul_rn(LENNARD_JONES_STEP, velocity.x);
        place.y += __fmul_rn(LENNARD_JONES_STEP, velocity.y);
        place.z += __fmul_rn(LENNARD_JONES_STEP, velocity.z);
        particles.places[particle] = place;
    }
}

static __global__ void add_energies(struct lennard_jones_particles particles)
{
    __shared__ float energies[LENNARD_JONES_BLOCK];
    int thread = threadIdx.x, particle = blockIdx.x * LENNARD_JONES_BLOCK + thread;
    energies[thread] = 0;
    if (particle < particles.nr_particles) {
        const struct lennard_jones_vector velocity = particles.velocities[particle];
        float square = square_of(velocity.x, velocity.y, velocity.z);
        energies[thread] = particles.forces[particle].potential + square / 2;
    }
    for (int half = LENNARD_JONES_BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) {
            energies[thread] += energies[thread + half];
        }
    }
    if (thread == 0) {
        particles.energies[blockIdx.x] = energies[0];
    }
}

static size_t vectors_bytes(void)
{
    return fluid.nr_particles * sizeof(struct lennard_jones_vector);
}

static void bring_to_device(void)
{
    BENCHMARK_CUDA(cudaMemcpy(fluid.device.places, fluid.host.places, vectors_bytes(), cudaMemcpyHostToDevice));
    BENCHMARK_CUDA(cudaMemcpy(fluid.device.velocities, fluid.host.velocities, vectors_bytes(), cudaMemcpyHostToDevice));
    BENCHMARK_CUDA(cudaMemcpy((void *)fluid.device.begins, fluid.begins, (fluid.nr_cells + 1) * sizeof(int32_t),
                              cudaMemcpyHostToDevice));
    BENCHMARK_CUDA(cudaMemcpy((void *)fluid.device.cells, fluid.cells, fluid.nr_particles * sizeof(int32_t),
                              cudaMemcpyHostToDevice));
}

static void act_on_device(void)
{
    act<<<fluid.nr_blocks, LENNARD_JONES_BLOCK>>>(fluid.device);
    BENCHMARK_CUDA(cudaGetLastError());
}

static void integrate_on_device(bool is_moving)
{
    integrate<<<fluid.nr_blocks, LENNARD_JONES_BLOCK>>>(fluid.device, is_moving);
    BENCHMARK_CUDA(cudaGetLastError());
}

static void read_energies_of_device(void)
{
    add_energies<<<fluid.nr_blocks, LENNARD_JONES_BLOCK>>>(fluid.device);
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaMemcpy(fluid.host.energies, fluid.device.energies, fluid.nr_blocks * sizeof(float),
                              cudaMemcpyDeviceToHost));
}

static void fetch_from_device(void)
{
    BENCHMARK_CUDA(cudaMemcpy(fluid.host.places, fluid.device.places, vectors_bytes(), cudaMemcpyDeviceToHost));
    BENCHMARK_CUDA(cudaMemcpy(fluid.host.velocities, fluid.device.velocities, vectors_bytes(), cudaMemcpyDeviceToHost));
}

static void do_nothing(void) {}

static void act_in_loops(void)
{
    lennard_jones_loops_act(&fluid.host);
}

static void integrate_in_loops(bool is_moving)
{
    lennard_jones_loops_integrate(&fluid.host, is_moving);
}

static void read_energies_of_loops(void)
{
    lennard_jones_loops_add_energies(&fluid.host);
}

/* Puts a coordinate back into the cube and returns its cell along that axis. */
static int cell_along(float *coordinate)
{
    const float cube = fluid.host.edge * LENNARD_JONES_CELL_EDGE;
    if (*coordinate < 0) {
        *coordinate += cube;
    } else if (*coordinate >= cube) {
        *coordinate -= cube;
    }
    return std::min(int(*coordinate / LENNARD_JONES_CELL_EDGE), fluid.host.edge - 1);
}

/* Sorts all particles by their cells; within a cell they stay in the order in which they are. */
static void migrate(void)
{
    const int edge = fluid.host.edge;
    std::swap(fluid.host.places, fluid.unsorted_places);
    std::swap(fluid.host.velocities, fluid.unsorted_velocities);
    std::swap(fluid.numbers, fluid.unsorted_numbers);
    memset(fluid.begins, 0, (fluid.nr_cells + 1) * sizeof(*fluid.begins));
    for (size_t at = 0; at < fluid.nr_particles; at++) {
        struct lennard_jones_vector *place = fluid.unsorted_places + at;
        int x = cell_along(&place->x), y = cell_along(&place->y), z = cell_along(&place->z);
        fluid.cells[at] = (z * edge + y) * edge + x;
        fluid.begins[fluid.cells[at] + 1]++;
    }
    for (size_t cell = 0; cell < fluid.nr_cells; cell++) {
        fluid.begins[cell + 1] += fluid.begins[cell];
    }
    for (size_t at = 0; at < fluid.nr_particles; at++) {
        int32_t sorted = fluid.begins[fluid.cells[at]]++;
        fluid.host.places[sorted] = fluid.unsorted_places[at];
        fluid.host.velocities[sorted] = fluid.unsorted_velocities[at];
        fluid.numbers[sorted] = fluid.unsorted_numbers[at];
    }
    memmove(fluid.begins + 1, fluid.begins, fluid.nr_cells * sizeof(*fluid.begins));
    fluid.begins[0] = 0;
    for (size_t cell = 0; cell < fluid.nr_cells; cell++) {
        std::fill(fluid.cells + fluid.begins[cell], fluid.cells + fluid.begins[cell + 1], (int32_t)cell);
    }
}

static double read_energies(const struct side *side)
{
    double energy = 0;
    side->read_energies();
    for (size_t block = 0; block < fluid.nr_blocks; block++) {
        energy += fluid.host.energies[block];
    }
    return energy / fluid.nr_particles;
}

/* Forces are of the order that particles had, so each cycle begins with them. */
static void simulate(const struct side *side)
{
    memcpy(fluid.host.places, fluid.initial_places, vectors_bytes());
    memcpy(fluid.host.velocities, fluid.initial_velocities, vectors_bytes());
    for (size_t at = 0; at < fluid.nr_particles; at++) {
        fluid.numbers[at] = (int32_t)at;
    }
    for (int cycle = 0; cycle < LENNARD_JONES_CYCLES; cycle++) {
        migrate();
        side->bring();
        side->act();
        if (cycle == 0) {
            side->readings[0] = read_energies(side);
        }
        for (int step = 0; step < LENNARD_JONES_STEPS; step++) {
            side->integrate(true);
            side->act();
            side->integrate(false);
        }
        side->readings[cycle + 1] = read_energies(side);
        side->fetch();
    }
    for (size_t at = 0; at < fluid.nr_particles; at++) {
        side->results[fluid.numbers[at]] = fluid.host.places[at];
        side->results[fluid.nr_particles + fluid.numbers[at]] = fluid.host.velocities[at];
    }
}

static struct lennard_jones_vector *allocate_vectors(size_t nr_of_each)
{
    return (struct lennard_jones_vector *)benchmark_allocate(nr_of_each * fluid.nr_particles,
                                                             sizeof(struct lennard_jones_vector));
}

static int32_t *allocate_numbers(size_t nr)
{
    return (int32_t *)benchmark_allocate(nr, sizeof(int32_t));
}

static void prepare_host(void)
{
    fluid.initial_places = allocate_vectors(1);
    fluid.initial_velocities = allocate_vectors(1);
    fluid.unsorted_places = allocate_vectors(1);
    fluid.unsorted_velocities = allocate_vectors(1);
    fluid.device_results = allocate_vectors(2);
    fluid.loops_results = allocate_vectors(2);
    fluid.numbers = allocate_numbers(fluid.nr_particles);
    fluid.unsorted_numbers = allocate_numbers(fluid.nr_particles);
    fluid.host.begins = fluid.begins = allocate_numbers(fluid.nr_cells + 1);
    fluid.host.cells = fluid.cells = allocate_numbers(fluid.nr_particles);
    fluid.host.places = allocate_vectors(1);
    fluid.host.velocities = allocate_vectors(1);
    fluid.host.forces = allocate_vectors(1);
    fluid.host.energies = (float *)benchmark_allocate(fluid.nr_blocks, sizeof(float));
}

static void prepare_device(void)
{
    fluid.device.nr_particles = fluid.host.nr_particles;
    fluid.device.edge = fluid.host.edge;
    BENCHMARK_CUDA(cudaMalloc(&fluid.device.begins, (fluid.nr_cells + 1) * sizeof(int32_t)));
    BENCHMARK_CUDA(cudaMalloc(&fluid.device.cells, fluid.nr_particles * sizeof(int32_t)));
    BENCHMARK_CUDA(cudaMalloc(&fluid.device.places, vectors_bytes()));
    BENCHMARK_CUDA(cudaMalloc(&fluid.device.velocities, vectors_bytes()));
    BENCHMARK_CUDA(cudaMalloc(&fluid.device.forces, vectors_bytes()));
    BENCHMARK_CUDA(cudaMalloc(&fluid.device.energies, fluid.nr_blocks * sizeof(float)));
}

static double prepare(size_t size)
{
    if (size < 3 || size > 128) {
        benchmark_fail("the size %zu is not between 3 and 128", size);
    }
    fluid.nr_cells = size * size * size;
    fluid.nr_particles = fluid.nr_cells * LENNARD_JONES_CELL_PARTICLES;
    fluid.nr_blocks = (fluid.nr_particles + LENNARD_JONES_BLOCK - 1) / LENNARD_JONES_BLOCK;
    fluid.host.nr_particles = (int)fluid.nr_particles;
    fluid.host.edge = (int)size;
    prepare_host();
    lennard_jones_generate((int)size, fluid.initial_places, fluid.initial_velocities);
    if (benchmark_uses_device()) {
        prepare_device();
    }
    return 1e-6 * fluid.nr_particles * LENNARD_JONES_CYCLES * LENNARD_JONES_STEPS;
}

static void device_round(void)
{
    const struct side side = {bring_to_device,   act_on_device,        integrate_on_device,  read_energies_of_device,
                              fetch_from_device, fluid.device_results, fluid.device_readings};
    simulate(&side);
}

static void loops_round(void)
{
    const struct side side = {do_nothing, act_in_loops,        integrate_in_loops,  read_energies_of_loops,
                              do_nothing, fluid.loops_results, fluid.loops_readings};
    simulate(&side);
}

/* Places and velocities to the bit. What both compute is motion only if it keeps the energy. */
static int check(char *why, size_t why_size)
{
    if (benchmark_compare_floats("place or velocity", &fluid.device_results->x, &fluid.loops_results->x,
                                 8 * fluid.nr_particles, 0, why, why_size)) {
        return 1;
    }
    for (int reading = 0; reading < NR_READINGS; reading++) {
        double device = fluid.device_readings[reading], loops = fluid.loops_readings[reading];
        if (device != loops || fabs(device - fluid.device_readings[0]) > MOST_DRIFT) {
            snprintf(why, why_size, "energy %d is %.9g on the device and %.9g in the loops; it began with %.9g",
                     reading, device, loops, fluid.device_readings[0]);
            return 1;
        }
    }
    return 0;
}

static void release(void)
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree((void *)fluid.device.begins));
        BENCHMARK_CUDA(cudaFree((void *)fluid.device.cells));
        BENCHMARK_CUDA(cudaFree(fluid.device.places));
        BENCHMARK_CUDA(cudaFree(fluid.device.velocities));
        BENCHMARK_CUDA(cudaFree(fluid.device.forces));
        BENCHMARK_CUDA(cudaFree(fluid.device.energies));
    }
    for (struct lennard_jones_vector *vectors :
         {fluid.initial_places, fluid.initial_velocities, fluid.unsorted_places, fluid.unsorted_velocities,
          fluid.device_results, fluid.loops_results, fluid.host.places, fluid.host.velocities, fluid.host.forces}) {
        free(vectors);
    }
    for (int32_t *numbers : {fluid.numbers, fluid.unsorted_numbers, fluid.begins, fluid.cells}) {
        free(numbers);
    }
    free(fluid.host.energies);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        "lennardJones",
        "molecular dynamics of particles in a periodic cube",
        "Mparticles/s",
        3,
        "cells along the cube's edge",
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
