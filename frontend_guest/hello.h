/* Taking a place in the region: see hello.c. */
#ifndef FRONTEND_GUEST_HELLO_H
#define FRONTEND_GUEST_HELLO_H

#include "cuda_api/types.h"
#include "guest.h"

/* Claims an entry, takes ring, responses and arena out of the heap, and greets the host. Any error has been told on
 * stderr. */
CUresult fgv_hello(struct fgv_guest *guest);

#endif
