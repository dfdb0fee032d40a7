/* Code that is loaded before it is launched: see eager.c. */
#ifndef BACKEND_HOST_EAGER_H
#define BACKEND_HOST_EAGER_H

#include "calls/state.h"

/* All functions of a module, whose context is current. */
void fgw_eager_load_module(struct fgw_worker *worker, CUmodule module);
/* All functions of a library in each context; from now on in those that are made, too. */
void fgw_eager_load_library(struct fgw_worker *worker, CUlibrary library);
/* All functions of all libraries in the current context, which is new. */
void fgw_eager_load_here(struct fgw_worker *worker);

#endif
