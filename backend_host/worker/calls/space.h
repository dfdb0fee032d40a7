/* The page of device memory that the workers of a space share: its first word is the split word (turn/round.h). */
#ifndef BACKEND_HOST_CALLS_SPACE_H
#define BACKEND_HOST_CALLS_SPACE_H

struct fgw_worker;

/* cffi: begin */
/* Maps the page with this descriptor, which stays the caller's. For a worker with a client that is not served yet. 0,
 * or the CUresult that says why there is no page: then no kernel of best effort makes room. */
int fgw_space_attach(struct fgw_worker *worker, int fd);
/* cffi: end */

#endif
