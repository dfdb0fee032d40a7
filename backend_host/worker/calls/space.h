/* What a worker does for being in a space. All of one share a page of device memory, whose first word is the split word
 * (turn/round.h). They are clients of MPS, which serves no kernels that launch kernels. */
#ifndef BACKEND_HOST_CALLS_SPACE_H
#define BACKEND_HOST_CALLS_SPACE_H

#include "client/state.h"

/* cffi: begin */
/* Maps the page with this descriptor, which stays the caller's. For a worker with a client that is not served yet. 0,
 * or the CUresult that says why there is no page: then no kernel of best effort makes room. */
int fgw_space_attach(struct fgw_worker *worker, int fd);
/* The worker is in a space: its images are asked this. */
void fgw_space_set_nests(struct fgw_worker *worker, fgw_nests_fn nests);
/* cffi: end */

/* Refuses an image that MPS does not serve, by CUDA's error for what a device cannot. */
CUresult fgw_space_check_image(struct fgw_worker *worker, const uint8_t *image, uint64_t image_bytes);

#endif
