/*
 * Memory of the span as descriptors, which another worker maps in its own span.
 *
 * An extent is made anew when a descriptor of it is first wanted: as memory that can be given away, with the bytes of
 * the old one, at the same address. So programs that share nothing pay nothing. Nothing of the client's may run.
 *
 * Wrong when: a program first shares many GiB. The loop waits meanwhile, 15 ms for 1 GiB on an H100; the copy is
 * charged, but in nobody's turn.
 */
#ifndef BACKEND_HOST_WORKER_EXTENT_FILES_H
#define BACKEND_HOST_WORKER_EXTENT_FILES_H

#include "calls/state.h"

/* Gives a descriptor of each extent that lies in here, which are at most FGW_MAX_SHARED_FILES, and which the caller
 * closes. On an error there is none. */
CUresult fgw_extent_files_open(struct fgw_worker *worker, uint64_t address, uint64_t bytes, int *files,
                               uint32_t *nr_files);
void fgw_extent_files_close(const int *files, uint32_t nr_files);
/* Puts the memory of such descriptors at addresses that were taken, and have none. They may be of anything: what is no
 * memory, or of another size, is CUDA_ERROR_INVALID_VALUE, and so are more or fewer than so many bytes have. What has
 * the key counts once for all programs that have it. */
CUresult fgw_extent_files_map(struct fgw_worker *worker, uint64_t address, uint64_t bytes, const struct fgw_key *key,
                              const int *files, uint32_t nr_files);

#endif
