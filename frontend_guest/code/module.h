/* Modules: see module.c. */
#ifndef FRONTEND_GUEST_MODULE_H
#define FRONTEND_GUEST_MODULE_H

struct fgv_context;

void fgv_module_forget_context(struct fgv_context *context);

#endif
