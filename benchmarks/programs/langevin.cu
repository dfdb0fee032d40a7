/*
 * langevin stands for programs of Langevin dynamics such as SOP-GPU, which simulate many chains of one protein at once:
 * a long row of small launches, two for each step, that nothing waits for until places are copied back.
 */
#include "langevin.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#include "common.h"

static struct {
    struct langevin_chains loops, device;
    struct langevin_native native;
    struct langevin_vector *initial, *device_places; /* of the host */
    size_t nr_beads;
} polymer;

/*
 * A product that goes into a sum is rounded by itself, by __fmul_rn, as in the loops, unless it is exact; so are
 * quotients and roots. So results are equal to the bit. A well would soon make more of a difference.
 */
static __device__ float square_of(const struct langevin_vector &apart)
{
    return __fmul_rn(apart.x, apart.x) + __fmul_rn(apart.y, apart.y) + __fmul_rn(apart.z, apart.z);
}

static __device__ void add(struct langevin_vector *force, float strength, const struct langevin_vector &apart)
{
    force->x += __fmul_rn(strength, apart.x);
    force->y += __fmul_rn(strength, apart.y);
    force->z += __fmul_rn(strength, apart.z);
}

static __device__ struct langevin_vector between(const struct langevin_vector &to, const struct langevin_vector &from)
{
    return {to.x - from.x, to.y - from.y, to.z - from.z, 0};
}

static __device__ void add_bond(struct langevin_vector *force, const struct langevin_vector &apart, float length)
{
    float distance = sqrtf(square_of(apart)), stretch = distance - length;
    float left = 1 - __fmul_rn(stretch, stretch) / (LANGEVIN_STRETCH * LANGEVIN_STRETCH);
    add(force, -LANGEVIN_SPRING * stretch / (left * distance), apart);
}

static __device__ void add_contact(struct langevin_vector *force, const struct langevin_vector &apart,
                                   float native_square)
{
    float square = square_of(apart), ratio = native_square / square;
    float sixth = __fmul_rn(__fmul_rn(ratio, ratio), ratio);
    add(force, 12 * LANGEVIN_WELL / square * sixth * (sixth - 1), apart);
}

static __device__ void add_repulsion(struct langevin_vector *force, const struct langevin_vector &apart)
{
    float square = square_of(apart);
    if (square < LANGEVIN_RANGE * LANGEVIN_RANGE) {
        float ratio = LANGEVIN_DIAMETER * LANGEVIN_DIAMETER / square;
        add(force, 6 / square * (ratio * ratio * ratio), apart);
    }
}

/* A block for each chain, a thread for each bead. */
static __global__ void act(struct langevin_chains chains)
{
    __shared__ struct langevin_vector places[LANGEVIN_BEADS];
    const int bead = threadIdx.x, number = blockIdx.x * LANGEVIN_BEADS + bead;
    const struct langevin_native &native = *chains.native;
    const struct langevin_vector here = places[bead] = chains.places[number];
    struct langevin_vector force = {0, 0, 0, 0};
    __syncthreads();
    if (bead > 0) {
        add_bond(&force, between(here, places[bead - 1]), native.bonds[bead - 1]);
    }
    if (bead < LANGEVIN_BEADS - 1) {
        add_bond(&force, between(here, places[bead + 1]), native.bonds[bead]);
    }
    for (int at = 0; at < native.nr_contacts[bead]; at++) {
        add_contact(&force, between(here, places[native.contacts[at][bead]]), native.squares[at][bead]);
    }
    for (int other = 0; other < LANGEVIN_BEADS; other++) {
        if (abs(other - bead) > 1) {
            add_repulsion(&force, between(here, places[other]));
        }
    }
    chains.forces[number] = force;
}

static __global__ void integrate(struct langevin_chains chains, uint32_t step)
{
    int bead = blockIdx.x * LANGEVIN_BEADS + threadIdx.x;
    const struct langevin_vector force = chains.forces[bead];
    struct langevin_vector place = chains.places[bead];
    uint64_t random = langevin_random(step, bead);
    place.x += __fmul_rn(LANGEVIN_MOBILITY, force.x) + __fmul_rn(LANGEVIN_NOISE, langevin_noise(random, 0));
    place.y += __fmul_rn(LANGEVIN_MOBILITY, force.y) + __fmul_rn(LANGEVIN_NOISE, langevin_noise(random, 1));
    place.z += __fmul_rn(LANGEVIN_MOBILITY, force.z) + __fmul_rn(LANGEVIN_NOISE, langevin_noise(random, 2));
    chains.places[bead] = place;
}

static float distance_of(const struct langevin_vector &to, const struct langevin_vector &from)
{
    return sqrtf((to.x - from.x) * (to.x - from.x) + (to.y - from.y) * (to.y - from.y) +
                 (to.z - from.z) * (to.z - from.z));
}

static size_t places_bytes(void)
{
    return polymer.nr_beads * sizeof(struct langevin_vector);
}

/* Residues of an alpha helix: 2.3 from its axis, 100 degrees and 1.5 along it from one to the next. */
static void generate_chains(void)
{
    for (size_t at = 0; at < polymer.nr_beads; at++) {
        int bead = at % LANGEVIN_BEADS;
        double angle = bead * 100 * M_PI / 180;
        polymer.initial[at] = {(float)(2.3 * cos(angle)), (float)(2.3 * sin(angle)), 1.5f * bead, 0};
    }
}

/* Contacts are pairs within range that are three or more bonds apart. */
static void find_native(struct langevin_native *native, const struct langevin_vector *places)
{
    for (int bead = 0; bead < LANGEVIN_BEADS; bead++) {
        if (bead < LANGEVIN_BEADS - 1) {
            native->bonds[bead] = distance_of(places[bead], places[bead + 1]);
        }
        for (int other = 0; other < LANGEVIN_BEADS; other++) {
            float distance = distance_of(places[bead], places[other]);
            if (abs(bead - other) >= 3 && distance < LANGEVIN_RANGE) {
                int at = native->nr_contacts[bead]++;
                native->contacts[at][bead] = other;
                native->squares[at][bead] = distance * distance;
            }
        }
    }
}

static void prepare_device(void)
{
    struct langevin_native *native;
    BENCHMARK_CUDA(cudaMalloc(&native, sizeof(*native)));
    BENCHMARK_CUDA(cudaMemcpy(native, &polymer.native, sizeof(*native), cudaMemcpyHostToDevice));
    polymer.device = {polymer.loops.nr_chains, native, NULL, NULL};
    BENCHMARK_CUDA(cudaMalloc(&polymer.device.places, places_bytes()));
    BENCHMARK_CUDA(cudaMalloc(&polymer.device.forces, places_bytes()));
    polymer.device_places = (struct langevin_vector *)benchmark_allocate(places_bytes(), 1);
}

static double prepare(size_t size)
{
    if (size > 1000000) {
        benchmark_fail("at most 1,000,000 chains");
    }
    polymer.nr_beads = size * LANGEVIN_BEADS;
    polymer.initial = (struct langevin_vector *)benchmark_allocate(places_bytes(), 1);
    polymer.loops.nr_chains = (int)size;
    polymer.loops.native = &polymer.native;
    polymer.loops.places = (struct langevin_vector *)benchmark_allocate(places_bytes(), 1);
    polymer.loops.forces = (struct langevin_vector *)benchmark_allocate(places_bytes(), 1);
    generate_chains();
    find_native(&polymer.native, polymer.initial);
    if (benchmark_uses_device()) {
        prepare_device();
    }
    return 1e-6 * polymer.nr_beads * LANGEVIN_STEPS;
}

static void device_round(void)
{
    BENCHMARK_CUDA(cudaMemcpy(polymer.device.places, polymer.initial, places_bytes(), cudaMemcpyHostToDevice));
    for (int step = 0; step < LANGEVIN_STEPS; step++) {
        act<<<polymer.device.nr_chains, LANGEVIN_BEADS>>>(polymer.device);
        integrate<<<polymer.device.nr_chains, LANGEVIN_BEADS>>>(polymer.device, step);
    }
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaMemcpy(polymer.device_places, polymer.device.places, places_bytes(), cudaMemcpyDeviceToHost));
}

static void loops_round(void)
{
    memcpy(polymer.loops.places, polymer.initial, places_bytes());
    for (int step = 0; step < LANGEVIN_STEPS; step++) {
        langevin_loops_act(&polymer.loops);
        langevin_loops_integrate(&polymer.loops, step);
    }
}

/* In the mean over all bonds, of what each is stretched by. */
static double square_of_stretches(const struct langevin_vector *places)
{
    double sum = 0;
    for (size_t at = 0; at < polymer.nr_beads; at++) {
        if (at % LANGEVIN_BEADS < LANGEVIN_BEADS - 1) {
            double stretch = distance_of(places[at], places[at + 1]) - polymer.native.bonds[at % LANGEVIN_BEADS];
            sum += stretch * stretch;
        }
    }
    return sum / (polymer.nr_beads - polymer.loops.nr_chains);
}

/* Places to the bit. They are those of a polymer in water if bonds have the energy that each degree of freedom has. */
static int check(char *why, size_t why_size)
{
    const double expected = LANGEVIN_KT / LANGEVIN_SPRING, found = square_of_stretches(polymer.device_places);
    if (benchmark_compare_floats("place", &polymer.device_places->x, &polymer.loops.places->x, 4 * polymer.nr_beads, 0,
                                 why, why_size)) {
        return 1;
    }
    if (found > 0.5 * expected && found < 1.5 * expected) {
        return 0;
    }
    snprintf(why, why_size, "bonds are stretched by a square of %g in the mean, where %g is expected", found, expected);
    return 1;
}

static void release(void)
{
    if (benchmark_uses_device()) {
        BENCHMARK_CUDA(cudaFree((void *)polymer.device.native));
        BENCHMARK_CUDA(cudaFree(polymer.device.places));
        BENCHMARK_CUDA(cudaFree(polymer.device.forces));
    }
    free(polymer.loops.places);
    free(polymer.loops.forces);
    free(polymer.initial);
    free(polymer.device_places);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        "langevin",
        "Langevin dynamics of many chains of a self-organized polymer",
        "Mbeads/s",
        8,
        "chains of 128 beads",
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
