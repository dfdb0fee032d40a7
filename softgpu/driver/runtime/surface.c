/*
 * Surfaces: kernels read and write the bytes of an array's texels. The first coordinate counts bytes, the others rows,
 * slices and layers. What happens outside is part of the instruction: a trap, the nearest place inside, or nothing.
 */
#include "memory/texture.h"
#include "runtime/records.h"

/* Brings a coordinate inside; false: it is outside, and the form does not clamp. */
static bool inside(int64_t *at, int64_t last, uint32_t form)
{
    if (*at >= 0 && *at <= last) {
        return true;
    }
    *at = *at < 0 ? 0 : last;
    return form & SGP_TEX_CLAMP;
}

void *sgp_surface_address(struct sgp_thread *self, uint64_t value, uint32_t form, const int32_t *operands,
                          uint32_t nr_bytes)
{
    const struct sgp_texture *surface = sgp_texture_find(value, SGP_SURFACE);

    if (!surface) {
        sgp_runner_abandon(self->team->runner, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    const struct sgp_level *level = &surface->levels[0];
    uint32_t nr_axes = form & SGP_TEX_AXES;
    int64_t row_bytes = (int64_t)level->extent[0] * surface->channel_bytes * surface->nr_channels;
    int64_t x = operands[SGP_OPERAND_COORDINATES];
    int64_t y = nr_axes > 1 ? operands[SGP_OPERAND_COORDINATES + 1] : 0;
    int64_t z = nr_axes > 2 ? operands[SGP_OPERAND_COORDINATES + 2] : 0;
    int64_t layer = form & SGP_TEX_LAYERED ? (int64_t)(uint32_t)operands[SGP_OPERAND_LAYER] : 0;
    int64_t last_layer = surface->nr_layers ? (int64_t)surface->nr_layers - 1 : 0;
    bool is_inside = row_bytes >= nr_bytes;

    is_inside &= inside(&x, (row_bytes / nr_bytes - 1) * nr_bytes, form);
    is_inside &= inside(&y, (int64_t)level->extent[1] - 1, form);
    is_inside &= inside(&z, (int64_t)level->extent[2] - 1, form);
    is_inside &= inside(&layer, last_layer, form);
    if (!is_inside && !(form & (SGP_TEX_ZERO | SGP_TEX_CLAMP))) {
        sgp_runner_abandon(self->team->runner, CUDA_ERROR_LAUNCH_FAILED);
    }
    if (!is_inside) {
        return NULL;
    }
    if (x % nr_bytes) {
        sgp_runner_abandon(self->team->runner, CUDA_ERROR_MISALIGNED_ADDRESS);
    }
    return level->base + (uint64_t)(z + layer) * level->slice_bytes + (uint64_t)y * level->pitch_bytes + (uint64_t)x;
}
