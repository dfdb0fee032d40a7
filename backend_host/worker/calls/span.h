/*
 * Linear memory of the device for the client. It lies at addresses of the span, which the client proposed and the
 * driver took, as physical memory that is mapped there: so it can be had again at the same address. Where there is no
 * span it is where the driver puts it.
 *
 * Where more is allocated than there is room for, an extent may be without memory for a while: swap.c brings all of
 * them onto the device before anything is submitted.
 *
 * Nothing here is counted to the quota. Nothing here waits, but for the driver's own freeing without a span: call that
 * when nothing of the client's runs.
 */
#ifndef BACKEND_HOST_WORKER_SPAN_H
#define BACKEND_HOST_WORKER_SPAN_H

#include "calls/state.h"

/* Memory of the span comes in multiples of this. */
#define FGW_SPAN_STEP_BYTES (UINT64_C(2) << 20)

static inline uint64_t fgw_span_round(uint64_t bytes)
{
    return (bytes + FGW_SPAN_STEP_BYTES - 1) / FGW_SPAN_STEP_BYTES * FGW_SPAN_STEP_BYTES;
}

/* cffi: begin */
/* Whether the client may open a span. */
void fgw_worker_set_span(struct fgw_worker *worker, bool is_wanted);
/* cffi: end */

/* Keeps the driver's own calls, before others stand in front of them. */
void fgw_span_init(const struct fgv_driver *driver);

/* CUDA_ERROR_OUT_OF_MEMORY: the device has no more. */
CUresult fgw_span_allocate(struct fgw_worker *worker, uint64_t bytes, uint64_t *address);
/* `bytes` as they were asked for. */
CUresult fgw_span_free(struct fgw_worker *worker, uint64_t address, uint64_t bytes);

/* Addresses without memory, multiples of FGW_SPAN_STEP_BYTES; false: there is no span, or no room in it. */
bool fgw_span_take(struct fgw_worker *worker, uint64_t bytes, uint64_t *address);
/* Memory at addresses that were taken, or that the client reserved itself, and have none. */
CUresult fgw_span_fill(struct fgw_worker *worker, uint64_t address, uint64_t bytes);
/* The memory whose extents lie in here, all of them whole; the addresses stay taken. Adds to `dropped_bytes`. */
CUresult fgw_span_empty(struct fgw_worker *worker, uint64_t address, uint64_t bytes, uint64_t *dropped_bytes);
/* Finds the last extent that lies whole in here; false: there is none. */
bool fgw_span_last_whole(const struct fgw_worker *worker, uint64_t address, uint64_t bytes, struct fgw_range *extent);
/* Whether the memory of an extent, to be found there, is not on the device. */
bool fgw_span_is_out(struct fgw_worker *worker, uint64_t address);
/* Tells how large each extent of an allocation is, but for the last one, by how many it has; 0: none has so many. */
uint64_t fgw_span_extent_bytes(uint64_t bytes, uint32_t nr_extents);
/* Whether memory of the client's own may be an extent, which is one handle: where there is reason to bring it out. */
bool fgw_span_may_move(const struct fgw_worker *worker, uint64_t bytes);
/* Makes an extent memory that stays where it is: its handle is the caller's. 0: it is not on the device, and stays one.
 */
CUmemGenericAllocationHandle fgw_span_disown(struct fgw_worker *worker, uint64_t address);
/* Brings an extent onto the device that is not there, as new memory. */
CUresult fgw_span_bring(struct fgw_worker *worker, struct fgw_range *extent);
/* Takes one off that is there; its bytes are lost. */
CUresult fgw_span_take_off(struct fgw_worker *worker, struct fgw_range *extent);

/* While a thread beside the worker's own has the lock, no extent comes, goes, or changes its memory. */
void fgw_span_lock(void);
void fgw_span_unlock(void);

/* Gives addresses back that have no memory. */
void fgw_span_give(struct fgw_worker *worker, uint64_t address);

/* The client has ended: the tables are freed. What the driver has goes with the process. */
void fgw_span_drop(struct fgw_worker *worker);

#endif
