/* Links of the client: see link.c. */
#ifndef BACKEND_HOST_LINK_H
#define BACKEND_HOST_LINK_H

#include "client/handles.h"

void fgv_link_release(struct fgv_worker *worker, const struct fgv_handle *handle);

#endif
