/*
 * What the record of a texture says, by what the program described: its texels, from an array or from memory; the run
 * of levels and layers that a view shows; how it is read. A record is set in this order, from one that is zeroed.
 *
 * All with the lock. An error leaves the record half set: it is not to be used.
 */
#ifndef SOFTGPU_TEXTURE_RECORD_H
#define SOFTGPU_TEXTURE_RECORD_H

#include "memory/array.h"

#define SGP_MAX_LINEAR_TEXELS (1u << 28)

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
    uint8_t nr_axes;
    uint8_t is_cubemap;
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

CUresult sgp_texture_set_resource(struct sgp_texture *texture, const CUDA_RESOURCE_DESC *resource);
/* As set_resource, of an array. */
CUresult sgp_texture_set_array(struct sgp_texture *texture, CUarray array);
/* A view names a format of the same size, and a run of levels and of layers. */
CUresult sgp_texture_set_view(struct sgp_texture *texture, const CUDA_RESOURCE_VIEW_DESC *view);
CUresult sgp_texture_set_sampler(struct sgp_texture *texture, const CUDA_TEXTURE_DESC *wanted);

#endif
