/*
 * Bytes of saved handles: written by a saver, which grows, and read back by who trusts none of them. All is plain data:
 * numbers of the guest's, sizes, values; no pointer, and nothing that another process could not read.
 */
#ifndef BACKEND_HOST_SAVED_H
#define BACKEND_HOST_SAVED_H

#include "client/state.h"

#define FGW_SAVED_ALIGNMENT 8u /* of all that is put, the rest being zero */

struct fgw_saver {
    uint8_t *bytes; /* the owner frees it */
    uint64_t nr, room;
    bool is_out_of_memory; /* it has not all that was put */
    /* Set by the owner: */
    bool is_at_work;      /* work may not have ended: it is nobody's concern yet */
    uint32_t left_out;    /* FGW_BELOW of the kinds that stay what they are */
    uint64_t first_image; /* of images that came before it a number stands for the bytes: see kept_image.c */
};

/* What is left to read. */
struct fgw_saved {
    const uint8_t *bytes;
    uint64_t left;
    CUresult result; /* the driver's last refusal, see fgw_saved_call */
};

/* It begins a handle; `bytes` of its kind follow. */
struct fgw_saved_head {
    uint64_t number;
    uint64_t above;   /* the number of what it goes with, 0: the client alone */
    uint64_t context; /* the number of the context that it lives in, 0: it outlives contexts */
    uint64_t bytes;
    uint8_t kind;
    uint8_t above_kind;
    uint8_t reserved[6];
};

void fgw_saver_put(struct fgw_saver *saver, const void *from, uint64_t bytes);

/* Finds the next bytes, which the caller copies before it checks them; NULL: there are not as many. */
const uint8_t *fgw_saved_view(struct fgw_saved *saved, uint64_t bytes);
bool fgw_saved_take(struct fgw_saved *saved, void *to, uint64_t bytes);

/* A request as the guest might send it, built from what was saved. */
struct fgw_saved_call {
    uint16_t call;
    const void *fixed; /* its struct fgv_request_<call> */
    const void *payload;
    uint32_t payload_bytes;
    void *reply; /* NULL: nobody asks */
};

/* Serves the request, with all of its handler's checks. It says why not, NULL: it was served. */
const char *fgw_saved_serve(struct fgw_worker *worker, struct fgw_saved *saved, const struct fgw_saved_call *call);

#define FGW_SAVED_CUT_SHORT "the saved bytes end too early"
#define FGW_SAVED_ODD       "the saved bytes are none that a worker writes"

#endif
