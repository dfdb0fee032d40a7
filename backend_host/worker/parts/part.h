/* One part of a large launch on its way to the device: see part.c. */
#ifndef BACKEND_HOST_PART_H
#define BACKEND_HOST_PART_H

#include "client/service.h"
#include "parts/launch.h"
#include "parts/state.h"

/* What makes a launch one of the parts. */
struct fgw_part_shape {
    uint32_t grid[3];
    const void *descriptor; /* what the variant is told beside the parameters */
    size_t descriptor_bytes;
    uint64_t nr_blocks; /* of the kernel's grid */
    bool forks;         /* a lane is to be had, for parts beside this one */
};

/* Submits it in this stream, the launch's own or the lane's. `launch` is as it was read. */
CUresult fgw_part_submit(struct fgw_worker *worker, const struct fgw_service *service, struct fgw_stream *stream,
                         struct fgw_launch *launch, const struct fgw_part_shape *shape);
/* Whether it has ended. */
bool fgw_part_has_ended(const struct fgw_parts *parts, const struct fgw_part *part, const struct fgw_stream *stream);

#endif
