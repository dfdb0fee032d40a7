/*
 * Texture and surface objects, as the driver makes them and kernels read them.
 *
 * A kernel gets an object as a number and reads its record without a lock: records lie in one table that is never moved
 * or given back, and a number says its place and how often that place was used, so that any number at all may be looked
 * up.
 */
#ifndef SOFTGPU_TEXTURE_H
#define SOFTGPU_TEXTURE_H

#include "memory/texture_record.h"

#define SGP_MAX_TEXTURES 65536u

/* The object of this value and kind, or NULL. Without the lock. */
const struct sgp_texture *sgp_texture_find(uint64_t value, enum sgp_texture_kind kind);
/* With the lock: all objects of the context go. */
void sgp_texture_delete_context(const struct CUctx_st *context);

#endif
