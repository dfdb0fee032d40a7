/* The client's contexts, and which of them is current for the driver. */
#ifndef BACKEND_HOST_CURRENT_H
#define BACKEND_HOST_CURRENT_H

#include "client/state.h"

/* Makes the context with these low 32 bits current; CUDA_ERROR_INVALID_CONTEXT when there is none. */
CUresult fgv_context_enter(struct fgv_worker *worker, uint32_t number);
void fgv_context_make_current(struct fgv_worker *worker, struct fgv_context *context);
/* After calls that leave another one current, or one that is gone. */
void fgv_context_none_is_current(struct fgv_worker *worker);
struct fgv_context *fgv_context_find(struct fgv_worker *worker, uint64_t handle);
/* One of them, to be current while another is made or unmade, so that pinned memory has a home; NULL: there is none. */
struct fgv_context *fgv_context_any(struct fgv_worker *worker);
/* False: there are as many as may be. */
bool fgv_context_add(struct fgv_worker *worker, struct fgv_context *context);
void fgv_context_remove(struct fgv_worker *worker, const struct fgv_context *context);

/* Whether what is submitted to this stream becomes part of a graph, or is refused because of one. */
bool fgv_is_recording(struct fgv_worker *worker, uint64_t stream_number);

/* Retains the device's primary context for the worker itself, if it is not, and lets it go. */
CUresult fgv_context_warm(struct fgv_worker *worker);
void fgv_context_cool(struct fgv_worker *worker);

#endif
