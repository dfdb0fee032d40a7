/* Texture and surface objects: the guest remembers of what they were made. */
#ifndef FRONTEND_GUEST_TEXTURE_H
#define FRONTEND_GUEST_TEXTURE_H

struct fgv_context;
void fgv_texture_forget_context(const struct fgv_context *context);

#endif
