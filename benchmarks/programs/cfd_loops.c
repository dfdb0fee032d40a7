/* The kernels of cfd.cu as plain loops, element for element. */
#include <math.h>
#include <stddef.h>

#include "cfd.h"

/* The gas in one element. */
struct gas {
    float density, energy, pressure, speed_squared, speed_of_sound;
    struct cfd_vector momentum, velocity;
};

static inline float dot(struct cfd_vector a, struct cfd_vector b)
{
    return a.x * b.x + a.y * b.y + a.z * b.z;
}

static inline struct gas gas_in(const struct cfd_mesh *mesh, const struct cfd_state *state, int element)
{
    const float *variables = state->variables + element;
    size_t pitch = mesh->nr_elements;
    struct gas gas = {
        .density = variables[CFD_DENSITY * pitch],
        .energy = variables[CFD_ENERGY * pitch],
        .momentum = {variables[CFD_MOMENTUM_X * pitch], variables[CFD_MOMENTUM_Y * pitch],
                     variables[CFD_MOMENTUM_Z * pitch]},
    };
    gas.velocity =
        (struct cfd_vector){gas.momentum.x / gas.density, gas.momentum.y / gas.density, gas.momentum.z / gas.density};
    gas.speed_squared = dot(gas.velocity, gas.velocity);
    gas.pressure = (CFD_GAMMA - 1) * (gas.energy - 0.5f * gas.density * gas.speed_squared);
    gas.speed_of_sound = sqrtf(CFD_GAMMA * gas.pressure / gas.density);
    return gas;
}

static inline struct cfd_flow flow_of(const struct gas *gas)
{
    struct cfd_vector momentum = gas->momentum, velocity = gas->velocity;
    float energy = gas->energy + gas->pressure;
    struct cfd_flow flow;
    flow.momentum_x.x = velocity.x * momentum.x + gas->pressure;
    flow.momentum_x.y = flow.momentum_y.x = velocity.x * momentum.y;
    flow.momentum_x.z = flow.momentum_z.x = velocity.x * momentum.z;
    flow.momentum_y.y = velocity.y * momentum.y + gas->pressure;
    flow.momentum_y.z = flow.momentum_z.y = velocity.y * momentum.z;
    flow.momentum_z.z = velocity.z * momentum.z + gas->pressure;
    flow.energy = (struct cfd_vector){velocity.x * energy, velocity.y * energy, velocity.z * energy};
    return flow;
}

static inline struct cfd_vector sum(struct cfd_vector a, struct cfd_vector b)
{
    return (struct cfd_vector){a.x + b.x, a.y + b.y, a.z + b.z};
}

/* Adds half of what both sides of a face let through. */
static inline void add_central(float *flux, struct cfd_vector normal, struct cfd_vector momentum,
                               const struct cfd_flow *here, struct cfd_vector other_momentum,
                               const struct cfd_flow *there)
{
    struct cfd_vector half = {0.5f * normal.x, 0.5f * normal.y, 0.5f * normal.z};
    flux[CFD_DENSITY] += dot(half, sum(momentum, other_momentum));
    flux[CFD_MOMENTUM_X] += dot(half, sum(here->momentum_x, there->momentum_x));
    flux[CFD_MOMENTUM_Y] += dot(half, sum(here->momentum_y, there->momentum_y));
    flux[CFD_MOMENTUM_Z] += dot(half, sum(here->momentum_z, there->momentum_z));
    flux[CFD_ENERGY] += dot(half, sum(here->energy, there->energy));
}

static inline void add_viscosity(float *flux, float area, const struct gas *here, const struct gas *there)
{
    float speeds =
        sqrtf(here->speed_squared) + sqrtf(there->speed_squared) + here->speed_of_sound + there->speed_of_sound;
    float factor = -area * CFD_VISCOSITY * 0.5f * speeds;
    flux[CFD_DENSITY] += factor * (here->density - there->density);
    flux[CFD_MOMENTUM_X] += factor * (here->momentum.x - there->momentum.x);
    flux[CFD_MOMENTUM_Y] += factor * (here->momentum.y - there->momentum.y);
    flux[CFD_MOMENTUM_Z] += factor * (here->momentum.z - there->momentum.z);
    flux[CFD_ENERGY] += factor * (here->energy - there->energy);
}

static void add_fluxes(const struct cfd_mesh *mesh, const struct cfd_state *state, const struct cfd_far_field *far,
                       int element)
{
    size_t pitch = mesh->nr_elements;
    const struct gas here = gas_in(mesh, state, element);
    const struct cfd_flow flow = flow_of(&here);
    const struct cfd_vector far_momentum = {far->variables[CFD_MOMENTUM_X], far->variables[CFD_MOMENTUM_Y],
                                            far->variables[CFD_MOMENTUM_Z]};
    float flux[CFD_VARIABLES] = {0};
    for (int face = 0; face < CFD_FACES; face++) {
        const float *component = mesh->normals + 3 * face * pitch + element;
        struct cfd_vector normal = {component[0], component[pitch], component[2 * pitch]};
        int neighbour = mesh->neighbours[face * pitch + element];
        if (neighbour >= 0) {
            const struct gas there = gas_in(mesh, state, neighbour);
            const struct cfd_flow other_flow = flow_of(&there);
            add_viscosity(flux, sqrtf(dot(normal, normal)), &here, &there);
            add_central(flux, normal, here.momentum, &flow, there.momentum, &other_flow);
        } else if (neighbour == CFD_WALL) {
            flux[CFD_MOMENTUM_X] += normal.x * here.pressure;
            flux[CFD_MOMENTUM_Y] += normal.y * here.pressure;
            flux[CFD_MOMENTUM_Z] += normal.z * here.pressure;
        } else {
            add_central(flux, normal, here.momentum, &flow, far_momentum, &far->flow);
        }
    }
    for (int variable = 0; variable < CFD_VARIABLES; variable++) {
        state->fluxes[variable * pitch + element] = flux[variable];
    }
}

/* The far field, disturbed a little, and differently in each element, so that everything moves from the start. */
void cfd_loops_initialize(const struct cfd_mesh *mesh, const struct cfd_state *state, const struct cfd_far_field *far)
{
#pragma omp parallel for
    for (int element = 0; element < mesh->nr_elements; element++) {
        uint32_t noise = (uint32_t)element * 2654435761u >> 16;
        float factor = 1 + CFD_PERTURBATION / 65536 * noise;
        for (int variable = 0; variable < CFD_VARIABLES; variable++) {
            state->variables[(size_t)variable * mesh->nr_elements + element] = factor * far->variables[variable];
        }
    }
}

void cfd_loops_step_factors(const struct cfd_mesh *mesh, const struct cfd_state *state)
{
#pragma omp parallel for
    for (int element = 0; element < mesh->nr_elements; element++) {
        const struct gas gas = gas_in(mesh, state, element);
        float speed = sqrtf(gas.speed_squared) + gas.speed_of_sound;
        state->step_factors[element] = 0.5f / (sqrtf(mesh->areas[element]) * speed);
    }
}

void cfd_loops_fluxes(const struct cfd_mesh *mesh, const struct cfd_state *state, const struct cfd_far_field *far)
{
#pragma omp parallel for
    for (int element = 0; element < mesh->nr_elements; element++) {
        add_fluxes(mesh, state, far, element);
    }
}

void cfd_loops_time_step(const struct cfd_mesh *mesh, const struct cfd_state *state, int stage)
{
#pragma omp parallel for
    for (int element = 0; element < mesh->nr_elements; element++) {
        float factor = state->step_factors[element] / (CFD_STAGES + 1 - stage);
        for (int variable = 0; variable < CFD_VARIABLES; variable++) {
            size_t at = (size_t)variable * mesh->nr_elements + element;
            state->variables[at] = state->old_variables[at] + factor * state->fluxes[at];
        }
    }
}
