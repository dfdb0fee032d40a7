/*
 * How large an array is, from its descriptor: what a quota counts, and where a copy must end. An array of block
 * compressed texels is made of blocks, 4 texels wide and high; all others of texels.
 */
#ifndef CUDA_API_ARRAY_FORMAT_H
#define CUDA_API_ARRAY_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"

/* A GPU lays texels out in tiles of that size, so that rows and columns fill whole ones. */
#define FGV_TILE_ROW_BYTES 64u
#define FGV_TILE_ROWS      8u

struct fgv_texel {
    uint32_t bytes; /* of a texel, or of a block */
    uint32_t edge;  /* texels along a side of a block; 1: no blocks */
};

static inline uint32_t fgv_channel_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

/* Formats that name their number of channels: 0 for one that does not. */
static inline uint32_t fgv_packed_bytes(CUarray_format format, uint32_t *nr_channels)
{
    uint32_t step = (uint32_t)format - CU_AD_FORMAT_UNORM_INT8X1;
    if (step > CU_AD_FORMAT_SNORM_INT16X4 - CU_AD_FORMAT_UNORM_INT8X1) {
        return 0;
    }
    *nr_channels = 1u << step % 3;
    return (step / 3 % 2 ? 2u : 1u) * *nr_channels;
}

static inline uint32_t fgv_block_bytes(CUarray_format format)
{
    if (format < CU_AD_FORMAT_BC1_UNORM || format > CU_AD_FORMAT_BC7_UNORM_SRGB) {
        return 0;
    }
    bool is_half =
        format <= CU_AD_FORMAT_BC1_UNORM_SRGB || format == CU_AD_FORMAT_BC4_UNORM || format == CU_AD_FORMAT_BC4_SNORM;
    return is_half ? 8 : 16;
}

/* False for a format that is not served, and for a number of channels that it does not have. */
static inline bool fgv_texel_of(CUarray_format format, uint32_t nr_channels, struct fgv_texel *texel)
{
    uint32_t named_channels;
    uint32_t channel_bytes = fgv_channel_bytes(format);
    uint32_t packed_bytes = fgv_packed_bytes(format, &named_channels);
    *texel = (struct fgv_texel){.bytes = fgv_block_bytes(format), .edge = 4};
    if (texel->bytes != 0) {
        return nr_channels >= 1 && nr_channels <= 4;
    }
    texel->edge = 1;
    if (packed_bytes != 0) {
        texel->bytes = packed_bytes;
        return nr_channels == named_channels;
    }
    texel->bytes = channel_bytes * nr_channels;
    return channel_bytes != 0 && (nr_channels == 1 || nr_channels == 2 || nr_channels == 4);
}

/* An array as a box of rows: bytes in a row, rows in a slice, slices. Layers and faces are slices. */
struct fgv_array_box {
    uint64_t row_bytes;
    uint64_t rows;
    uint64_t slices;
};

static inline uint64_t fgv_level_extent(uint64_t extent, uint32_t level)
{
    uint64_t smaller = level < 64 ? extent >> level : 0;
    return smaller != 0 ? smaller : extent != 0;
}

/* One level of a mipmapped array, or level 0 of any. False when the descriptor is none, or its size no number. */
static inline bool fgv_array_box_of(const CUDA_ARRAY3D_DESCRIPTOR *array, uint32_t level, struct fgv_array_box *box)
{
    struct fgv_texel texel;
    bool has_layers = (array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    uint64_t width = fgv_level_extent(array->Width, level);
    uint64_t height = fgv_level_extent(array->Height, level);
    uint64_t depth = has_layers ? array->Depth : fgv_level_extent(array->Depth, level);
    if (!fgv_texel_of(array->Format, array->NumChannels, &texel) || width == 0) {
        return false;
    }
    uint64_t blocks = width / texel.edge + (width % texel.edge != 0);
    box->rows = height == 0 ? 1 : height / texel.edge + (height % texel.edge != 0);
    box->slices = depth == 0 ? 1 : depth;
    return !__builtin_mul_overflow(blocks, (uint64_t)texel.bytes, &box->row_bytes);
}

static inline bool fgv_round_up(uint64_t value, uint64_t unit, uint64_t *rounded)
{
    return !__builtin_add_overflow(value, (unit - value % unit) % unit, rounded);
}

/* What all levels take on a device, about; false when that is no number. */
static inline bool fgv_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, uint32_t nr_levels, uint64_t *bytes)
{
    *bytes = 0;
    for (uint32_t level = 0; level < nr_levels; level++) {
        struct fgv_array_box box;
        uint64_t row_bytes, rows, slice_bytes, level_bytes;
        if (!fgv_array_box_of(array, level, &box) || !fgv_round_up(box.row_bytes, FGV_TILE_ROW_BYTES, &row_bytes) ||
            !fgv_round_up(box.rows, box.rows > 1 ? FGV_TILE_ROWS : 1, &rows) ||
            __builtin_mul_overflow(row_bytes, rows, &slice_bytes) ||
            __builtin_mul_overflow(slice_bytes, box.slices, &level_bytes) ||
            __builtin_add_overflow(*bytes, level_bytes, bytes)) {
            return false;
        }
    }
    return true;
}

/* The largest number of levels: down to one texel. */
static inline uint32_t fgv_array_max_levels(const CUDA_ARRAY3D_DESCRIPTOR *array)
{
    bool has_layers = (array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    uint64_t largest = array->Width > array->Height ? array->Width : array->Height;
    if (!has_layers && array->Depth > largest) {
        largest = array->Depth;
    }
    uint32_t nr_levels = 0;
    for (; largest != 0; largest >>= 1) {
        nr_levels++;
    }
    return nr_levels;
}

#endif
