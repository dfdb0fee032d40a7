/*
 * Texture and surface objects, as the driver makes them and kernels read them.
 *
 * A kernel gets an object as a number and reads its record without a lock: records lie in one table that is never moved
 * or given back, and a number says its place and how often that place was used, so that any number at all may be looked
 * up.
 */
#ifndef SOFTGPU_TEXTURE_H
#define SOFTGPU_TEXTURE_H

#include "memory/array.h"

#define SGP_MAX_TEXTURES 65536u

enum sgp_texture_kind { SGP_TEXTURE = 1, SGP_SURFACE };

/* What a channel of a texel holds. */
enum sgp_channel { SGP_CHANNEL_UNSIGNED, SGP_CHANNEL_SIGNED, SGP_CHANNEL_FLOAT };

struct sgp_level {
    uint8_t *base;
    uint32_t extent[3]; /* texels along x, y, z; 1 where there is no such axis */
    uint64_t pitch_bytes;
    uint64_t slice_bytes;
};

struct sgp_texture {
    _Atomic uint64_t value; /* 0: free place */
    struct CUctx_st *context;
    uint32_t generation;
    uint32_t next_free; /* place + 1 */
    uint8_t kind;
    /* The texels. */
    uint8_t channel;
    uint8_t channel_bytes;
    uint8_t nr_channels;
    uint8_t is_linear_memory; /* read by tex1Dfetch alone */
    uint8_t is_fraction;      /* whole numbers, read as fractions of the largest */
    uint8_t is_srgb;
    uint8_t is_normalized; /* coordinates are */
    uint8_t address_mode[3];
    uint8_t is_filtered;
    uint8_t mixes_levels;
    uint32_t nr_layers; /* 0: no layers; of a cube map, its faces count six for each */
    uint32_t nr_levels;
    float level_bias, least_level, greatest_level;
    float border[4];
    struct sgp_level levels[SGP_MAX_LEVELS];
};

/* The object of this value and kind, or NULL. Without the lock. */
const struct sgp_texture *sgp_texture_find(uint64_t value, enum sgp_texture_kind kind);
/* With the lock: all objects of the context go. */
void sgp_texture_delete_context(const struct CUctx_st *context);

#endif
