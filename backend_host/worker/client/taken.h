/* What the driver takes of the device beside what a client allocates: see taken.c. */
#ifndef BACKEND_HOST_TAKEN_H
#define BACKEND_HOST_TAKEN_H

#include "client/state.h"

/* Each has a counter of its own in the worker's slot. */
enum fgw_taken_for { FGW_FOR_CONTEXTS, FGW_FOR_STREAMS, FGW_FOR_MODULES, FGW_FOR_LIMITS };

/* cffi: begin */
/* Before the worker takes a client; 0: the device library takes no memory of the device for one. */
void fgw_worker_set_costs(struct fgw_worker *worker, uint64_t context_bytes, uint64_t stream_bytes);
/* cffi: end */

/* Takes from the vGPU's quota: false, and nothing counted, when it would not fit. */
bool fgw_taken_take(struct fgw_worker *worker, enum fgw_taken_for what, uint64_t bytes);
void fgw_taken_give(struct fgw_worker *worker, enum fgw_taken_for what, uint64_t bytes);
/* Changes what is counted, which `counted_bytes` has, to `due_bytes`: false, and nothing changed, when it would not
 * fit. */
bool fgw_taken_change(struct fgw_worker *worker, enum fgw_taken_for what, uint64_t *counted_bytes, uint64_t due_bytes);

/* Counts the primary context, once however often it is retained. */
bool fgw_taken_primary(struct fgw_worker *worker);
void fgw_taken_primary_gone(struct fgw_worker *worker);

/* Notes the limits that a new context has, which its own cost covers. It is current. */
void fgw_taken_note_limits(struct fgw_worker *worker, struct fgw_context *context);
/* Counts a context's limits as they would be with this one, and what its kernels need: CUDA_ERROR_OUT_OF_MEMORY, and
 * nothing changed, when it would not fit. */
CUresult fgw_taken_limit(struct fgw_worker *worker, struct fgw_context *context, CUlimit limit, uint64_t value);
/* Counts memory that is local to the threads of a kernel which is about to run in the current context. */
CUresult fgw_taken_local(struct fgw_worker *worker, uint64_t local_bytes);
/* The context is gone. */
void fgw_taken_limits_gone(struct fgw_worker *worker, struct fgw_context *context);

#endif
