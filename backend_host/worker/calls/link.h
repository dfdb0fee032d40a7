/* Links of the client: see link.c. */
#ifndef BACKEND_HOST_LINK_H
#define BACKEND_HOST_LINK_H

#include "client/handles.h"

void fgw_link_release(struct fgw_worker *worker, const struct fgw_handle *handle);

#endif
