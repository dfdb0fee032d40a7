/* The client's contexts, and which of them is current for the driver. */
#ifndef BACKEND_HOST_CURRENT_H
#define BACKEND_HOST_CURRENT_H

#include "client/state.h"

/* Makes the context with these low 32 bits current; CUDA_ERROR_INVALID_CONTEXT when there is none, or what the driver
 * says. */
CUresult fgw_context_enter(struct fgw_worker *worker, uint32_t number);
CUresult fgw_context_make_current(struct fgw_worker *worker, struct fgw_context *context);
/* It is for after calls that leave another one current, or one that is gone. */
void fgw_context_none_is_current(struct fgw_worker *worker);
struct fgw_context *fgw_context_find(struct fgw_worker *worker, uint64_t handle);
/* Counts them. */
uint32_t fgw_context_count(const struct fgw_worker *worker);
/* Finds one of them, to be current while another is made or unmade, so that pinned memory has a home; NULL: there is
 * none. */
struct fgw_context *fgw_context_any(const struct fgw_worker *worker);
/* It returns false when there are as many as may be. */
bool fgw_context_add(struct fgw_worker *worker, struct fgw_context *context);
void fgw_context_remove(struct fgw_worker *worker, const struct fgw_context *context);

/* The driver's contexts, with the warm one and the device, are those of `other` from now on, which has this one's for
 * them: it has a context for each. */
void fgw_contexts_exchange(struct fgw_worker *worker, struct fgw_worker *other);

/* Tells whether what is submitted to this stream becomes part of a graph, or is refused because of one. */
bool fgw_is_recording(struct fgw_worker *worker, uint64_t stream_number);

/* Retains the device's primary context for the worker itself, if it is not, and lets it go; the client has let go of
 * its own by then. */
CUresult fgw_context_warm(struct fgw_worker *worker);
CUresult fgw_context_cool(struct fgw_worker *worker);

#endif
