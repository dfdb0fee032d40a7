/*
 * Reading textures, by the formulas of the CUDA programming guide's page on texture fetching.
 *
 * Filtering mixes 2, 4 or 8 texels with weights of 8 fractional bits, as a GPU does; sums are made in double precision
 * and rounded once, which no GPU promises. Coordinates are brought to texels in double precision.
 */

#include "memory/texture.h"

#include <math.h>
#include <string.h>

#include "runtime/half.h"
#include "runtime/records.h"

#define WEIGHT_ONE 256 /* a weight of 1: 8 fractional bits */
#define FACES      6u

/* Whole results are kept as doubles, too: 32 bits fit. */
struct texel {
    double channel[4];
};

/* One place to read: a level, a slice, and coordinates in texels. */
struct place {
    const struct sgp_texture *texture;
    const struct sgp_level *level;
    uint32_t slice;
    uint32_t nr_axes;
    bool is_normalized;
    double at[3];
    int32_t offset[3];
    uint8_t mode[3];
};

static const struct sgp_texture *find(struct sgp_thread *self, uint64_t value, enum sgp_texture_kind kind)
{
    const struct sgp_texture *texture = sgp_texture_find(value, kind);

    if (!texture) {
        sgp_runner_abandon(self->team->runner, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    return texture;
}

/* ---- numbers: what a library call for each texel would take too long for ---- */

#define FIRST_WHOLE 4503599627370496.0 /* 2^52: from here on all numbers are whole */

static double floor_of(double value)
{
    if (!(fabs(value) < FIRST_WHOLE)) {
        return value;
    }
    double whole = (double)(int64_t)value;

    return whole > value ? whole - 1 : whole;
}

/* Neither is a NaN. */
static double least_of(double a, double b)
{
    return a < b ? a : b;
}

static double greatest_of(double a, double b)
{
    return a > b ? a : b;
}

/* ---- texels ---- */

static double linear_of_srgb(double value)
{
    return value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4);
}

static double float_channel(const uint8_t *at, uint32_t bytes)
{
    uint16_t half;
    float single;

    if (bytes == 2) {
        memcpy(&half, at, sizeof(half));
        return sgp_half_value(half);
    }
    memcpy(&single, at, sizeof(single));
    return single;
}

static double whole_channel(const uint8_t *at, uint32_t bytes, bool is_signed)
{
    uint32_t value = 0;

    memcpy(&value, at, bytes);
    if (!is_signed) {
        return value;
    }
    uint32_t unused_bits = 32 - 8 * bytes;
    return (int32_t)(value << unused_bits) >> unused_bits;
}

static double fraction_of(double value, uint32_t bytes, bool is_signed)
{
    double largest = (double)((1u << (8 * bytes - is_signed)) - 1);

    return greatest_of(value / largest, -1);
}

static double channel_read(const struct sgp_texture *texture, const uint8_t *at, uint32_t channel)
{
    bool is_signed = texture->channel == SGP_CHANNEL_SIGNED;

    at += channel * texture->channel_bytes;
    if (texture->channel == SGP_CHANNEL_FLOAT) {
        return float_channel(at, texture->channel_bytes);
    }
    double value = whole_channel(at, texture->channel_bytes, is_signed);
    if (!texture->is_fraction) {
        return value;
    }
    value = fraction_of(value, texture->channel_bytes, is_signed);
    return texture->is_srgb && channel < 3 ? linear_of_srgb(value) : value;
}

static void border_read(const struct sgp_texture *texture, struct texel *texel)
{
    for (int channel = 0; channel < 4; channel++) {
        texel->channel[channel] = texture->border[channel];
    }
}

/* Channels that the format lacks read as 0, the fourth as 1. */
static void texel_at(const struct place *place, const int64_t index[3], struct texel *texel)
{
    const struct sgp_texture *texture = place->texture;
    const struct sgp_level *level = place->level;
    const uint8_t *at = level->base + (place->slice + (uint64_t)index[2]) * level->slice_bytes +
                        (uint64_t)index[1] * level->pitch_bytes +
                        (uint64_t)index[0] * texture->channel_bytes * texture->nr_channels;

    for (uint32_t channel = 0; channel < 4; channel++) {
        texel->channel[channel] = channel < texture->nr_channels ? channel_read(texture, at, channel) : channel == 3;
    }
}

/* ---- addresses ---- */

/* Brings a texel's number into the texture; false: it is outside, where the border is. */
static bool index_fold(int64_t *index, int64_t extent, uint8_t mode)
{
    if (*index >= 0 && *index < extent) {
        return true;
    }
    switch (mode) {
    case CU_TR_ADDRESS_MODE_WRAP:
        *index = (*index % extent + extent) % extent;
        return true;
    case CU_TR_ADDRESS_MODE_MIRROR:
        *index = (*index % (2 * extent) + 2 * extent) % (2 * extent);
        *index = *index < extent ? *index : 2 * extent - 1 - *index;
        return true;
    case CU_TR_ADDRESS_MODE_CLAMP:
        *index = *index < 0 ? 0 : extent - 1;
        return true;
    default:
        return false;
    }
}

static void texel_folded(const struct place *place, const int64_t index[3], struct texel *texel)
{
    int64_t folded[3] = {0, 0, 0};

    for (uint32_t axis = 0; axis < place->nr_axes; axis++) {
        folded[axis] = index[axis];
        if (!index_fold(&folded[axis], place->level->extent[axis], place->mode[axis])) {
            border_read(place->texture, texel);
            return;
        }
    }
    texel_at(place, folded, texel);
}

/* A coordinate in texels: whole turns are taken off first, what is far outside stays near enough to be a number. */
static double in_texels(const struct place *place, uint32_t axis)
{
    double at = place->at[axis], extent = place->level->extent[axis];

    if (!(fabs(at) < INFINITY)) {
        return isnan(at) ? 0 : at < 0 ? -2 : extent + 2;
    }
    if (place->is_normalized) {
        if (place->mode[axis] == CU_TR_ADDRESS_MODE_WRAP) {
            at -= floor_of(at);
        } else if (place->mode[axis] == CU_TR_ADDRESS_MODE_MIRROR) {
            at -= 2 * floor_of(at / 2);
        }
        at *= extent;
    }
    at += place->offset[axis];
    return least_of(greatest_of(at, -16), 2 * extent + 16);
}

/* The first texel of a footprint along an axis, and the weight of the second in 1/256. */
static int64_t footprint(const struct place *place, uint32_t axis, uint32_t *weight)
{
    int64_t fixed = (int64_t)floor_of((in_texels(place, axis) - 0.5) * WEIGHT_ONE + 0.5);

    *weight = (uint32_t)(fixed & (WEIGHT_ONE - 1));
    return fixed >> 8;
}

/* ---- filtering ---- */

static void read_nearest(const struct place *place, struct texel *texel)
{
    int64_t index[3] = {0, 0, 0};

    for (uint32_t axis = 0; axis < place->nr_axes; axis++) {
        index[axis] = (int64_t)floor_of(in_texels(place, axis));
    }
    texel_folded(place, index, texel);
}

static void read_filtered(const struct place *place, struct texel *texel)
{
    int64_t first[3] = {0, 0, 0}, index[3];
    uint32_t weight[3] = {0, 0, 0};

    for (uint32_t axis = 0; axis < place->nr_axes; axis++) {
        first[axis] = footprint(place, axis, &weight[axis]);
    }
    memset(texel, 0, sizeof(*texel));
    for (uint32_t corner = 0; corner < 1u << place->nr_axes; corner++) {
        struct texel one;
        double share = 1;

        for (uint32_t axis = 0; axis < 3; axis++) {
            uint32_t is_second = corner >> axis & 1;
            index[axis] = first[axis] + is_second;
            if (axis < place->nr_axes) {
                share *= (double)(is_second ? weight[axis] : WEIGHT_ONE - weight[axis]) / WEIGHT_ONE;
            }
        }
        if (share == 0) {
            continue;
        }
        texel_folded(place, index, &one);
        for (int channel = 0; channel < 4; channel++) {
            texel->channel[channel] += share * one.channel[channel];
        }
    }
}

/* tld4: one channel of the four texels of a footprint, from the lower left one against the clock. */
static void read_gathered(const struct place *place, uint32_t channel, struct texel *texel)
{
    static const uint8_t corners[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    uint32_t weight;
    int64_t x = footprint(place, 0, &weight), y = footprint(place, 1, &weight);

    for (int corner = 0; corner < 4; corner++) {
        int64_t index[3] = {x + corners[corner][0], y + corners[corner][1], 0};
        struct texel one;

        texel_folded(place, index, &one);
        texel->channel[corner] = one.channel[channel];
    }
}

static void read_level(struct place *place, uint32_t level, struct texel *texel)
{
    place->level = &place->texture->levels[level];
    if (place->texture->is_filtered) {
        read_filtered(place, texel);
    } else {
        read_nearest(place, texel);
    }
}

static void read_levels(struct place *place, double level, struct texel *texel)
{
    const struct sgp_texture *texture = place->texture;
    double last = texture->nr_levels - 1;

    if (texture->nr_levels == 1) {
        read_level(place, 0, texel);
        return;
    }
    level = fmin(fmax(level + texture->level_bias, texture->least_level), texture->greatest_level); /* of any numbers */
    level = fmin(fmax(level, 0), last);
    if (!texture->mixes_levels) {
        read_level(place, (uint32_t)floor_of(level + 0.5), texel);
        return;
    }
    uint32_t fixed = (uint32_t)floor_of(level * WEIGHT_ONE + 0.5), weight = fixed % WEIGHT_ONE;
    struct texel next;

    read_level(place, fixed / WEIGHT_ONE, texel);
    if (!weight) {
        return;
    }
    read_level(place, fixed / WEIGHT_ONE + 1, &next);
    for (int channel = 0; channel < 4; channel++) {
        texel->channel[channel] =
            (texel->channel[channel] * (WEIGHT_ONE - weight) + next.channel[channel] * weight) / WEIGHT_ONE;
    }
}

/* ---- operands ---- */

static double float_operand(const uint32_t *operands, uint32_t at)
{
    float value;

    memcpy(&value, &operands[at], sizeof(value));
    return value;
}

/* A direction to a face and a place on it. */
static void face_of(struct place *place)
{
    double x = place->at[0], y = place->at[1], z = place->at[2];
    double longest = fmax(fmax(fabs(x), fabs(y)), fabs(z)), s, t;
    uint32_t face;

    if (fabs(x) == longest) {
        face = x < 0;
        s = x < 0 ? z : -z;
        t = -y;
    } else if (fabs(y) == longest) {
        face = 2 + (y < 0);
        s = x;
        t = y < 0 ? -z : z;
    } else {
        face = 4 + (z < 0);
        s = z < 0 ? -x : x;
        t = -y;
    }
    place->slice = place->slice * FACES + face;
    place->at[0] = longest > 0 ? (s / longest + 1) / 2 : 0.5;
    place->at[1] = longest > 0 ? (t / longest + 1) / 2 : 0.5;
    place->at[2] = 0;
    place->nr_axes = 2;
    place->is_normalized = true;
}

static uint32_t layer_of(const struct sgp_texture *texture, uint32_t form, uint32_t operand)
{
    uint32_t nr_layers = form & SGP_TEX_CUBE ? texture->nr_layers / FACES : texture->nr_layers;

    if (!(form & SGP_TEX_LAYERED) || !nr_layers) {
        return 0;
    }
    return operand < nr_layers ? operand : nr_layers - 1;
}

/* The level at which a step of one thread's derivative is one texel. */
static double level_of_gradient(const struct place *place, const uint32_t *operands)
{
    const struct sgp_texture *texture = place->texture;
    double x = 0, y = 0;

    for (uint32_t axis = 0; axis < place->nr_axes; axis++) {
        double scale = place->is_normalized ? texture->levels[0].extent[axis] : 1;
        double dx = float_operand(operands, SGP_OPERAND_GRADIENT_X + axis) * scale;
        double dy = float_operand(operands, SGP_OPERAND_GRADIENT_Y + axis) * scale;

        x += dx * dx;
        y += dy * dy;
    }
    double longest = sqrt(fmax(x, y));
    return longest > 0 ? log2(longest) : 0;
}

static void place_set(struct place *place, const struct sgp_texture *texture, uint32_t form, const uint32_t *operands)
{
    *place = (struct place){.texture = texture, .level = &texture->levels[0], .nr_axes = form & SGP_TEX_AXES};
    place->slice = layer_of(texture, form, operands[SGP_OPERAND_LAYER]);
    place->is_normalized = texture->is_normalized && !(form & SGP_TEX_WHOLE);
    for (uint32_t axis = 0; axis < 3; axis++) {
        place->at[axis] = form & SGP_TEX_WHOLE ? (double)(int32_t)operands[SGP_OPERAND_COORDINATES + axis]
                                               : float_operand(operands, SGP_OPERAND_COORDINATES + axis);
        place->offset[axis] = (int32_t)operands[SGP_OPERAND_OFFSETS + axis];
        place->mode[axis] = form & SGP_TEX_CUBE ? CU_TR_ADDRESS_MODE_CLAMP : texture->address_mode[axis];
    }
    if (form & SGP_TEX_CUBE) {
        face_of(place);
    }
}

/* Whole coordinates name a texel; outside there are zeros. */
static void read_whole(const struct place *place, struct texel *texel)
{
    int64_t index[3] = {0, 0, 0};

    for (uint32_t axis = 0; axis < place->nr_axes; axis++) {
        bool is_near = fabs(place->at[axis]) < UINT32_MAX; /* else it is nowhere, or no number */

        index[axis] = is_near ? (int64_t)place->at[axis] + place->offset[axis] : -1;
        if (index[axis] < 0 || index[axis] >= place->level->extent[axis]) {
            memset(texel, 0, sizeof(*texel));
            return;
        }
    }
    texel_at(place, index, texel);
}

static void channels_write(const struct sgp_texture *texture, const struct texel *texel, uint32_t *channels)
{
    bool is_integer = texture->channel != SGP_CHANNEL_FLOAT && !texture->is_fraction;

    for (int channel = 0; channel < 4; channel++) {
        float value = (float)texel->channel[channel];

        if (is_integer) {
            channels[channel] = (uint32_t)(int64_t)texel->channel[channel];
        } else {
            memcpy(&channels[channel], &value, sizeof(value));
        }
    }
}

void sgp_texture_fetch(struct sgp_thread *self, uint64_t value, uint32_t form, const uint32_t *operands,
                       uint32_t *channels)
{
    const struct sgp_texture *texture = find(self, value, SGP_TEXTURE);
    struct texel texel;
    struct place place;

    place_set(&place, texture, form, operands);
    if (form & SGP_TEX_WHOLE || texture->is_linear_memory) {
        read_whole(&place, &texel);
    } else if (form & SGP_TEX_GATHER) {
        read_gathered(&place, form >> SGP_TEX_CHANNEL_SHIFT & 3, &texel);
    } else if (form & SGP_TEX_LEVEL) {
        read_levels(&place, float_operand(operands, SGP_OPERAND_LEVEL), &texel);
    } else if (form & SGP_TEX_GRADIENT) {
        read_levels(&place, level_of_gradient(&place, operands), &texel);
    } else {
        read_levels(&place, 0, &texel);
    }
    channels_write(texture, &texel, channels);
}

/* ---- questions ---- */

/* PTX numbers types and orders of channels as OpenCL does. */
static uint32_t channel_type(const struct sgp_texture *texture)
{
    uint32_t size = texture->channel_bytes >> 1; /* 0, 1, 2 */

    if (texture->channel == SGP_CHANNEL_FLOAT) {
        return texture->channel_bytes == 2 ? 0x10dd : 0x10de;
    }
    if (texture->is_fraction) {
        return (texture->channel == SGP_CHANNEL_SIGNED ? 0x10d0 : 0x10d2) + size;
    }
    return (texture->channel == SGP_CHANNEL_SIGNED ? 0x10d7 : 0x10da) + size;
}

uint32_t sgp_texture_query(struct sgp_thread *self, uint64_t value, uint32_t query, uint32_t level)
{
    static const uint32_t orders[] = {0, 0x10b0, 0x10b2, 0, 0x10b5};
    const struct sgp_texture *texture = find(self, value, query & SGP_QUERY_SURFACE ? SGP_SURFACE : SGP_TEXTURE);
    const struct sgp_level *of = &texture->levels[level < texture->nr_levels ? level : texture->nr_levels - 1];

    switch (query & ~(uint32_t)SGP_QUERY_SURFACE) {
    case SGP_QUERY_WIDTH:
        return of->extent[0];
    case SGP_QUERY_HEIGHT:
        return of->extent[1];
    case SGP_QUERY_DEPTH:
        return of->extent[2];
    case SGP_QUERY_CHANNEL_TYPE:
        return channel_type(texture);
    case SGP_QUERY_CHANNEL_ORDER:
        return orders[texture->nr_channels];
    case SGP_QUERY_NORMALIZED:
        return texture->is_normalized;
    case SGP_QUERY_LAYERS:
        return texture->nr_layers;
    case SGP_QUERY_LEVELS:
        return texture->nr_levels;
    default:
        return 1; /* samples */
    }
}
