/*
 * cfd (euler3d) of Rodinia, written anew: in each iteration a copy on the device and seven short kernels. The original
 * asks after each launch whether it failed, and the FairGV paper counts more synchronous calls than launches; here the
 * question is a synchronisation, after which an error of the kernel itself is known, too.
 *
 * The mesh is generated: quadrilaterals with shifted corners on a plane that is inclined to all axes, numbered
 * out of order, with a stretch of wall at one edge.
 */
#include "cfd.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#include "common.h"

/*
 * The device adds most products in one rounding (fma), the loops in two. In one stage an element's variable takes in
 * some sixty such terms, each of about its own size or smaller and scaled by a step of about a quarter; roundings are
 * independent, so a stage adds about 8 * 2^-24 / 4 of the largest variable (the energy, 4.5), and the 12 stages 6e-6.
 * Differences between elements are 10 % at the start: a wrong neighbour or face moves a variable by 1e-3 or more.
 */
static const double TOLERANCE = 1e-5;

static struct {
    struct cfd_mesh mesh, device_mesh;
    struct cfd_state loops, device;
    struct cfd_far_field far_field;
    float *device_variables; /* on the host */
} gas_flow;

struct gas {
    float density, energy, pressure, speed_squared, speed_of_sound;
    struct cfd_vector momentum, velocity;
};

static __constant__ struct cfd_far_field far_field;

static __device__ int element_of_thread(void)
{
    return blockDim.x * blockIdx.x + threadIdx.x;
}

static __device__ float dot(const struct cfd_vector &a, const struct cfd_vector &b)
{
    return a.x * b.x + a.y * b.y + a.z * b.z;
}

static __device__ struct gas gas_in(const struct cfd_mesh &mesh, const float *variables, int element)
{
    struct gas gas;
    gas.density = variables[element + CFD_DENSITY * mesh.nr_elements];
    gas.momentum.x = variables[element + CFD_MOMENTUM_X * mesh.nr_elements];
    gas.momentum.y = variables[element + CFD_MOMENTUM_Y * mesh.nr_elements];
    gas.momentum.z = variables[element + CFD_MOMENTUM_Z * mesh.nr_elements];
    gas.energy = variables[element + CFD_ENERGY * mesh.nr_elements];
    gas.velocity = {gas.momentum.x / gas.density, gas.momentum.y / gas.density, gas.momentum.z / gas.density};
    gas.speed_squared = dot(gas.velocity, gas.velocity);
    gas.pressure = (CFD_GAMMA - 1) * (gas.energy - 0.5f * gas.density * gas.speed_squared);
    gas.speed_of_sound = sqrtf(CFD_GAMMA * gas.pressure / gas.density);
    return gas;
}

static __host__ __device__ struct cfd_flow flow_of(const struct gas &gas)
{
    const struct cfd_vector &velocity = gas.velocity, &momentum = gas.momentum;
    float energy = gas.energy + gas.pressure;
    struct cfd_flow flow;
    flow.momentum_x = {velocity.x * momentum.x + gas.pressure, velocity.x * momentum.y, velocity.x * momentum.z};
    flow.momentum_y = {flow.momentum_x.y, velocity.y * momentum.y + gas.pressure, velocity.y * momentum.z};
    flow.momentum_z = {flow.momentum_x.z, flow.momentum_y.z, velocity.z * momentum.z + gas.pressure};
    flow.energy = {velocity.x * energy, velocity.y * energy, velocity.z * energy};
    return flow;
}

static __device__ struct cfd_vector sum(const struct cfd_vector &a, const struct cfd_vector &b)
{
    return {a.x + b.x, a.y + b.y, a.z + b.z};
}

/* Adds half of what both sides of a face let through. */
static __device__ void add_central(float *flux, const struct cfd_vector &normal, const struct cfd_vector &momentum,
                                   const struct cfd_flow &flow, const struct cfd_vector &other_momentum,
                                   const struct cfd_flow &other_flow)
{
    struct cfd_vector half = {0.5f * normal.x, 0.5f * normal.y, 0.5f * normal.z};
    flux[CFD_DENSITY] += dot(half, sum(momentum, other_momentum));
    flux[CFD_MOMENTUM_X] += dot(half, sum(flow.momentum_x, other_flow.momentum_x));
    flux[CFD_MOMENTUM_Y] += dot(half, sum(flow.momentum_y, other_flow.momentum_y));
    flux[CFD_MOMENTUM_Z] += dot(half, sum(flow.momentum_z, other_flow.momentum_z));
    flux[CFD_ENERGY] += dot(half, sum(flow.energy, other_flow.energy));
}

static __device__ void add_viscosity(float *flux, float area, const struct gas &here, const struct gas &there)
{
    float speeds = sqrtf(here.speed_squared) + sqrtf(there.speed_squared) + here.speed_of_sound + there.speed_of_sound;
    float factor = -area * CFD_VISCOSITY * 0.5f * speeds;
    flux[CFD_DENSITY] += factor * (here.density - there.density);
    flux[CFD_MOMENTUM_X] += factor * (here.momentum.x - there.momentum.x);
    flux[CFD_MOMENTUM_Y] += factor * (here.momentum.y - there.momentum.y);
    flux[CFD_MOMENTUM_Z] += factor * (here.momentum.z - there.momentum.z);
    flux[CFD_ENERGY] += factor * (here.energy - there.energy);
}

/* The far field, disturbed a little, and differently in each element, so that everything moves from the start. */
static __global__ void initialize(struct cfd_mesh mesh, float *variables)
{
    int element = element_of_thread();
    uint32_t noise = (uint32_t)element * 2654435761u >> 16;
    float factor = 1 + CFD_PERTURBATION / 65536 * noise;
    for (int variable = 0; variable < CFD_VARIABLES; variable++) {
        variables[element + variable * mesh.nr_elements] = factor * far_field.variables[variable];
    }
}

static __global__ void compute_step_factors(struct cfd_mesh mesh, const float *variables, float *step_factors)
{
    int element = element_of_thread();
    const struct gas gas = gas_in(mesh, variables, element);
    step_factors[element] = 0.5f / (sqrtf(mesh.areas[element]) * (sqrtf(gas.speed_squared) + gas.speed_of_sound));
}

static __global__ void compute_fluxes(struct cfd_mesh mesh, const float *variables, float *fluxes)
{
    int element = element_of_thread();
    const struct gas here = gas_in(mesh, variables, element);
    const struct cfd_flow flow = flow_of(here);
    const struct cfd_vector far_momentum = {far_field.variables[CFD_MOMENTUM_X], far_field.variables[CFD_MOMENTUM_Y],
                                            far_field.variables[CFD_MOMENTUM_Z]};
    float flux[CFD_VARIABLES] = {0, 0, 0, 0, 0};
#pragma unroll
    for (int face = 0; face < CFD_FACES; face++) {
        const float *component = mesh.normals + 3 * face * mesh.nr_elements + element;
        struct cfd_vector normal = {component[0], component[mesh.nr_elements], component[2 * mesh.nr_elements]};
        int neighbour = mesh.neighbours[element + face * mesh.nr_elements];
        if (neighbour >= 0) {
            const struct gas there = gas_in(mesh, variables, neighbour);
            add_viscosity(flux, sqrtf(dot(normal, normal)), here, there);
            add_central(flux, normal, here.momentum, flow, there.momentum, flow_of(there));
        } else if (neighbour == CFD_WALL) {
            flux[CFD_MOMENTUM_X] += normal.x * here.pressure;
            flux[CFD_MOMENTUM_Y] += normal.y * here.pressure;
            flux[CFD_MOMENTUM_Z] += normal.z * here.pressure;
        } else {
            add_central(flux, normal, here.momentum, flow, far_momentum, far_field.flow);
        }
    }
    for (int variable = 0; variable < CFD_VARIABLES; variable++) {
        fluxes[element + variable * mesh.nr_elements] = flux[variable];
    }
}

static __global__ void time_step(struct cfd_mesh mesh, struct cfd_state state, int stage)
{
    int element = element_of_thread();
    float factor = state.step_factors[element] / (CFD_STAGES + 1 - stage);
    for (int variable = 0; variable < CFD_VARIABLES; variable++) {
        int at = element + variable * mesh.nr_elements;
        state.variables[at] = state.old_variables[at] + factor * state.fluxes[at];
    }
}

static size_t values_bytes(int nr_values)
{
    return (size_t)nr_values * gas_flow.mesh.nr_elements * sizeof(float);
}

static const struct cfd_vector ALONG = {2 / 3.0f, 2 / 3.0f, 1 / 3.0f}, ACROSS = {-2 / 3.0f, 1 / 3.0f, 2 / 3.0f};

/* Mach 1.2 along the plane of the mesh, at pressure 1. */
static void set_far_field(struct cfd_far_field *far)
{
    const float mach = 1.2f, speed_of_sound = 1;
    struct gas gas = {};
    gas.density = CFD_GAMMA;
    gas.pressure = 1;
    float speed = mach * speed_of_sound;
    gas.velocity = {speed * ALONG.x, speed * ALONG.y, speed * ALONG.z};
    gas.momentum = {gas.density * gas.velocity.x, gas.density * gas.velocity.y, gas.density * gas.velocity.z};
    gas.energy = 0.5f * gas.density * speed * speed + gas.pressure / (CFD_GAMMA - 1);
    far->variables[CFD_DENSITY] = gas.density;
    far->variables[CFD_MOMENTUM_X] = gas.momentum.x;
    far->variables[CFD_MOMENTUM_Y] = gas.momentum.y;
    far->variables[CFD_MOMENTUM_Z] = gas.momentum.z;
    far->variables[CFD_ENERGY] = gas.energy;
    far->flow = flow_of(gas);
}

/* The quadrilaterals in rows of `width`, the last of which may be shorter. */
struct plane {
    int nr_quads, width, nr_rows;
    float *u, *v;     /* of the corners, in rows of width + 1 */
    int32_t *numbers; /* of the quadrilaterals as elements of the mesh */
};

/* Numbers are shuffled among 1,024 neighbours in a row: out of order, but not far from each other, as after sorting. */
static int32_t *shuffle_numbers(int nr_numbers, uint64_t *random)
{
    int32_t *numbers = (int32_t *)benchmark_allocate(nr_numbers, sizeof(*numbers));
    for (int at = 0; at < nr_numbers; at++) {
        int other = at - (int)(benchmark_random(random) % (at % 1024 + 1));
        numbers[at] = numbers[other];
        numbers[other] = at;
    }
    return numbers;
}

static struct plane generate_plane(int nr_quads)
{
    uint64_t random = 1;
    struct plane plane = {nr_quads, (int)ceil(sqrt(nr_quads)), 0, NULL, NULL, shuffle_numbers(nr_quads, &random)};
    plane.nr_rows = (nr_quads + plane.width - 1) / plane.width;
    int nr_corners = (plane.width + 1) * (plane.nr_rows + 1);
    plane.u = (float *)benchmark_allocate(nr_corners, sizeof(*plane.u));
    plane.v = (float *)benchmark_allocate(nr_corners, sizeof(*plane.v));
    for (int at = 0; at < nr_corners; at++) {
        plane.u[at] = at % (plane.width + 1) + 0.4f * benchmark_random_float(&random);
        plane.v[at] = at / (plane.width + 1) + 0.4f * benchmark_random_float(&random);
    }
    return plane;
}

/* The wall is the middle third of the first row's lower edge. */
static int32_t neighbour_of(const struct plane *plane, int quad, int face)
{
    static const int COLUMN_STEP[CFD_FACES] = {0, 1, 0, -1}, ROW_STEP[CFD_FACES] = {-1, 0, 1, 0};
    int column = quad % plane->width + COLUMN_STEP[face], row = quad / plane->width + ROW_STEP[face];
    if (row < 0) {
        return column >= plane->width / 3 && column < plane->width - plane->width / 3 ? CFD_WALL : CFD_FAR;
    }
    int other = row * plane->width + column;
    bool is_there = column >= 0 && column < plane->width && other < plane->nr_quads;
    return is_there ? plane->numbers[other] : CFD_FAR;
}

/* Fills in one element; `normals` are those of the element, a value of the next component `pitch` further on. */
static void set_element(const struct plane *plane, int quad, size_t pitch, float *area, int32_t *neighbours,
                        float *normals)
{
    int first = quad / plane->width * (plane->width + 1) + quad % plane->width;
    const int corners[CFD_FACES + 1] = {first, first + 1, first + plane->width + 2, first + plane->width + 1, first};
    *area = 0;
    for (int face = 0; face < CFD_FACES; face++) {
        int from = corners[face], to = corners[face + 1];
        float inward_u = plane->v[from] - plane->v[to], inward_v = plane->u[to] - plane->u[from];
        *area += (plane->u[from] * plane->v[to] - plane->u[to] * plane->v[from]) / 2;
        neighbours[face * pitch] = neighbour_of(plane, quad, face);
        float *normal = normals + 3 * face * pitch;
        normal[0] = inward_u * ALONG.x + inward_v * ACROSS.x;
        normal[pitch] = inward_u * ALONG.y + inward_v * ACROSS.y;
        normal[2 * pitch] = inward_u * ALONG.z + inward_v * ACROSS.z;
    }
}

/* Elements beyond `nr_quads`, which fill the last block, are computed like the last one; no other has them beside it.
 */
static struct cfd_mesh generate_mesh(int nr_quads)
{
    struct plane plane = generate_plane(nr_quads);
    int nr_elements = (nr_quads + CFD_BLOCK - 1) / CFD_BLOCK * CFD_BLOCK;
    float *areas = (float *)benchmark_allocate(nr_elements, sizeof(*areas));
    int32_t *neighbours = (int32_t *)benchmark_allocate((size_t)nr_elements * CFD_FACES, sizeof(*neighbours));
    float *normals = (float *)benchmark_allocate((size_t)nr_elements * CFD_FACES * 3, sizeof(*normals));
    for (int at = 0; at < nr_elements; at++) {
        int quad = at < nr_quads ? at : nr_quads - 1;
        int element = at < nr_quads ? plane.numbers[at] : at;
        set_element(&plane, quad, nr_elements, areas + element, neighbours + element, normals + element);
    }
    free(plane.u);
    free(plane.v);
    free(plane.numbers);
    return {nr_elements, areas, neighbours, normals};
}

/* Copies to new memory of the device. */
static void *to_device(const void *values, size_t nr_bytes)
{
    void *copy;
    BENCHMARK_CUDA(cudaMalloc(&copy, nr_bytes));
    BENCHMARK_CUDA(cudaMemcpy(copy, values, nr_bytes, cudaMemcpyHostToDevice));
    return copy;
}

static void prepare_device(void)
{
    const struct cfd_mesh *mesh = &gas_flow.mesh;
    gas_flow.device_mesh.nr_elements = mesh->nr_elements;
    gas_flow.device_mesh.areas = (float *)to_device(mesh->areas, values_bytes(1));
    gas_flow.device_mesh.neighbours = (int32_t *)to_device(mesh->neighbours, values_bytes(CFD_FACES));
    gas_flow.device_mesh.normals = (float *)to_device(mesh->normals, values_bytes(3 * CFD_FACES));
    BENCHMARK_CUDA(cudaMalloc(&gas_flow.device.variables, values_bytes(CFD_VARIABLES)));
    BENCHMARK_CUDA(cudaMalloc(&gas_flow.device.old_variables, values_bytes(CFD_VARIABLES)));
    BENCHMARK_CUDA(cudaMalloc(&gas_flow.device.fluxes, values_bytes(CFD_VARIABLES)));
    BENCHMARK_CUDA(cudaMalloc(&gas_flow.device.step_factors, values_bytes(1)));
    gas_flow.device_variables = (float *)benchmark_allocate(values_bytes(CFD_VARIABLES), 1);
}

static double prepare(size_t size)
{
    if (size > 100000000) {
        benchmark_fail("at most 100,000,000 elements");
    }
    gas_flow.mesh = generate_mesh((int)size);
    set_far_field(&gas_flow.far_field);
    gas_flow.loops.variables = (float *)benchmark_allocate(values_bytes(CFD_VARIABLES), 1);
    gas_flow.loops.old_variables = (float *)benchmark_allocate(values_bytes(CFD_VARIABLES), 1);
    gas_flow.loops.fluxes = (float *)benchmark_allocate(values_bytes(CFD_VARIABLES), 1);
    gas_flow.loops.step_factors = (float *)benchmark_allocate(values_bytes(1), 1);
    if (benchmark_uses_device()) {
        prepare_device();
    }
    return (double)size * CFD_ITERATIONS * 1e-6;
}

static void finish_launch(void)
{
    BENCHMARK_CUDA(cudaGetLastError());
    BENCHMARK_CUDA(cudaDeviceSynchronize());
}

static void device_round(void)
{
    const struct cfd_mesh *mesh = &gas_flow.device_mesh;
    const struct cfd_state *state = &gas_flow.device;
    const int nr_blocks = mesh->nr_elements / CFD_BLOCK;
    BENCHMARK_CUDA(cudaMemcpyToSymbol(far_field, &gas_flow.far_field, sizeof(far_field)));
    initialize<<<nr_blocks, CFD_BLOCK>>>(*mesh, state->variables);
    finish_launch();
    for (int iteration = 0; iteration < CFD_ITERATIONS; iteration++) {
        BENCHMARK_CUDA(
            cudaMemcpy(state->old_variables, state->variables, values_bytes(CFD_VARIABLES), cudaMemcpyDeviceToDevice));
        compute_step_factors<<<nr_blocks, CFD_BLOCK>>>(*mesh, state->variables, state->step_factors);
        finish_launch();
        for (int stage = 0; stage < CFD_STAGES; stage++) {
            compute_fluxes<<<nr_blocks, CFD_BLOCK>>>(*mesh, state->variables, state->fluxes);
            finish_launch();
            time_step<<<nr_blocks, CFD_BLOCK>>>(*mesh, *state, stage);
            finish_launch();
        }
    }
    BENCHMARK_CUDA(
        cudaMemcpy(gas_flow.device_variables, state->variables, values_bytes(CFD_VARIABLES), cudaMemcpyDeviceToHost));
}

static void loops_round(void)
{
    const struct cfd_mesh *mesh = &gas_flow.mesh;
    const struct cfd_state *state = &gas_flow.loops;
    cfd_loops_initialize(mesh, state, &gas_flow.far_field);
    for (int iteration = 0; iteration < CFD_ITERATIONS; iteration++) {
        memcpy(state->old_variables, state->variables, values_bytes(CFD_VARIABLES));
        cfd_loops_step_factors(mesh, state);
        for (int stage = 0; stage < CFD_STAGES; stage++) {
            cfd_loops_fluxes(mesh, state, &gas_flow.far_field);
            cfd_loops_time_step(mesh, state, stage);
        }
    }
}

static int check(char *why, size_t why_size)
{
    return benchmark_compare_floats("variable", gas_flow.device_variables, gas_flow.loops.variables,
                                    (size_t)gas_flow.mesh.nr_elements * CFD_VARIABLES, TOLERANCE, why, why_size);
}

static void release_state(const struct cfd_state *state, void (*release_array)(void *))
{
    release_array(state->variables);
    release_array(state->old_variables);
    release_array(state->fluxes);
    release_array(state->step_factors);
}

static void release_mesh(const struct cfd_mesh *mesh, void (*release_array)(void *))
{
    release_array((void *)mesh->areas);
    release_array((void *)mesh->neighbours);
    release_array((void *)mesh->normals);
}

static void release_on_device(void *array)
{
    BENCHMARK_CUDA(cudaFree(array));
}

static void release(void)
{
    if (benchmark_uses_device()) {
        release_state(&gas_flow.device, release_on_device);
        release_mesh(&gas_flow.device_mesh, release_on_device);
    }
    release_state(&gas_flow.loops, free);
    release_mesh(&gas_flow.mesh, free);
    free(gas_flow.device_variables);
}

int main(int argc, char **argv)
{
    static const struct benchmark benchmark = {
        "cfd",
        "the flow of a gas around a wall (Euler equations, finite volumes)",
        "Melements/s",
        50000,
        "elements of the mesh",
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
