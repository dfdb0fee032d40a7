/*
 * The client's objects as plain data: all that its handles name, written in an order in which each stands behind what
 * it is made of, and made again from that, under the same numbers, in another process or on another device.
 *
 * Handles alone: memory, what is in it and where it is mapped, and work are others' to move.
 */
#ifndef BACKEND_HOST_OBJECTS_H
#define BACKEND_HOST_OBJECTS_H

#include "client/saved.h"
#include "client/state.h"

/* What went wrong with which handle. */
struct fgw_trouble {
    const char *why; /* in words */
    uint64_t number; /* 0: it is about none */
    uint32_t kind;
    CUresult result; /* the driver's, CUDA_SUCCESS: it was not asked */
};

/* Writes all of the client's objects. False: one of them cannot be saved, and `saver` has nothing of use. */
bool fgw_objects_save(struct fgw_worker *worker, struct fgw_saver *saver, struct fgw_trouble *trouble);
/* Makes memory be where it was, mapped from allocations that are there again. It says why not, NULL: it did. */
typedef const char *(*fgw_objects_memory)(struct fgw_worker *worker);
/* Makes them again for a client that has none of these numbers. `memory` is called between contexts and allocations and
 * what may read memory; NULL: no memory is needed. False: what was made until then is there, and the caller gives it up
 * with the client. The bytes may be anything. */
bool fgw_objects_restore(struct fgw_worker *worker, const uint8_t *bytes, uint64_t nr_bytes, fgw_objects_memory memory,
                         struct fgw_trouble *trouble);

/* Makes objects that were made again from `before` be those of `now`: both what fgw_objects_save wrote of one client,
 * whose images of before are known in `now`. What is there no more goes, as far as the table has it: the driver's
 * object goes with its context. False as above. */
bool fgw_objects_follow(struct fgw_worker *worker, const struct fgw_saver *before, const struct fgw_saver *now,
                        struct fgw_trouble *trouble);

#endif
