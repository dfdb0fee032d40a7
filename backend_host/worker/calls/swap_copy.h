/*
 * Copies of extents in memory of this process, and what is known of their bytes, block by block: which are as they were
 * when they were brought out the last time, and which are zeros.
 */
#ifndef BACKEND_HOST_WORKER_SWAP_COPY_H
#define BACKEND_HOST_WORKER_SWAP_COPY_H

#include "calls/fingerprint.h"
#include "calls/state.h"

/* A place for an extent's bytes. */
struct fgw_swap_copy {
    void *start;
    bool is_filled; /* they are there; else they never were brought out */
    uint32_t nr;    /* of blocks of FGW_PRINT_BYTES */
    struct fgw_swap_block {
        struct fgw_print print; /* of the bytes in their place, if it is known */
        bool is_known;
        bool is_zero; /* all bytes are, and none are in their place */
        bool moves;   /* the bytes are copied, now */
    } blocks[];
};

/* Finds the copy of an extent; NULL: there is none yet. */
struct fgw_swap_copy *fgw_swap_copy_of(struct fgw_worker *worker, const struct fgw_range *extent);
/* Makes one, whose place is `start`; without memory for it the place is freed. */
void fgw_swap_copy_keep(struct fgw_worker *worker, const struct fgw_range *extent, void *start);
/* Frees one of the table of copies, and takes it out. */
void fgw_swap_copy_drop(struct fgw_worker *worker, struct fgw_range *copy);

/* Submits the copies of what has to come, and makes zeros of the rest. Counts bytes into `copied_bytes`. */
CUresult fgw_swap_copy_in(const struct fgv_driver *driver, struct fgw_swap_copy *copy, uint64_t address,
                          CUstream stream, uint64_t *copied_bytes);
/* Submits the copies of what has to go; `prints` of the memory as it is, NULL: all has to. */
CUresult fgw_swap_copy_out(const struct fgv_driver *driver, struct fgw_swap_copy *copy, uint64_t address,
                           const struct fgw_print *prints, CUstream stream, uint64_t *copied_bytes);
/* What these prints tell of the memory since it left the last time. */
struct fgw_compared fgw_swap_copy_compare(const struct fgw_swap_copy *copy, const struct fgw_print *prints);
/* Those copies have ended, and the memory was as the same prints say. */
void fgw_swap_copy_fill(struct fgw_swap_copy *copy, const struct fgw_print *prints);

#endif
