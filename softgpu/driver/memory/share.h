/* A shared file as one process has it: the descriptor, and its part in the count of what is in the file. With the lock.
 */
#ifndef SOFTGPU_SHARE_H
#define SOFTGPU_SHARE_H

#include "base/shared_file.h"
#include "device/device.h"

struct sgp_share {
    int file;
    struct sgp_device *device;
    struct sgp_shared_head head;
    bool is_exported; /* what is in it counts for all who have it, not for this process */
};

/* A new file of so many bytes; CUDA_ERROR_OUT_OF_MEMORY: the host has none. */
CUresult sgp_share_new(struct sgp_share *share, enum sgp_shared_kind kind, struct sgp_device *device, uint64_t bytes);
/* From here on these bytes, which this process counted, count for all who have the file. */
CUresult sgp_share_export(struct sgp_share *share, uint64_t bytes);
/* A file that another process made, of a head that was read from it. It is taken over if all goes well. */
CUresult sgp_share_import(struct sgp_share *share, int file, const struct sgp_shared_head *head);
void sgp_share_end(struct sgp_share *share);

#endif
