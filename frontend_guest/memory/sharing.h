/* Memory of other programs of this machine: see sharing.c. */
#ifndef FRONTEND_GUEST_SHARING_H
#define FRONTEND_GUEST_SHARING_H

struct fgv_context;

/* The worker closed what was opened in it. */
void fgv_sharing_forget_context(const struct fgv_context *context);

#endif
