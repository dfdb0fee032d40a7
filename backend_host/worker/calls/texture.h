/* Texture and surface objects, saved and made again: see texture.c. */
#ifndef BACKEND_HOST_TEXTURE_H
#define BACKEND_HOST_TEXTURE_H

#include "client/kind.h"

const char *fgw_texture_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver);
const char *fgw_texture_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved);

const char *fgw_surface_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver);
const char *fgw_surface_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved);

#endif
