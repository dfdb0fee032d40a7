/*
 * What the record of a texture says, by what the program described: its texels, from an array or from memory; the run of
 * levels and layers that a view shows; how it is read. A record is set in this order, from one that is zeroed.
 *
 * All with the lock. An error leaves the record half set: it is not to be used.
 */
#ifndef SOFTGPU_TEXTURE_RECORD_H
#define SOFTGPU_TEXTURE_RECORD_H

#include "memory/texture.h"

#define SGP_MAX_LINEAR_TEXELS (1u << 28)

CUresult sgp_texture_set_resource(struct sgp_texture *texture, const CUDA_RESOURCE_DESC *resource);
/* As set_resource, of an array. */
CUresult sgp_texture_set_array(struct sgp_texture *texture, CUarray array);
/* A view names a format of the same size, and a run of levels and of layers. */
CUresult sgp_texture_set_view(struct sgp_texture *texture, const CUDA_RESOURCE_VIEW_DESC *view);
CUresult sgp_texture_set_sampler(struct sgp_texture *texture, const CUDA_TEXTURE_DESC *wanted);

#endif
