/*
 * Contexts: how they are found, made and undone. Which one is current is the thread's affair and known here alone; the
 * worker learns of a context when a call needs it there, and every request carries the number of the one that was
 * current.
 */
#ifndef FRONTEND_GUEST_CONTEXT_H
#define FRONTEND_GUEST_CONTEXT_H

#include "call/current.h"

/* What ends with a context. face/upward.c fills it. */
struct fgv_context_ops {
    /* Gives back what the worker lets go of only while it has the context. */
    void (*release)(const struct fgv_context *context);
    /* Forgets what lived in the context, which the worker has no more. Its handle is still valid. */
    void (*forget)(struct fgv_context *context);
};
extern const struct fgv_context_ops *fgv_context_ops;

/* Whether a context may be made with these flags: known ones, and one way to wait. */
bool fgv_context_flags_are_sound(unsigned int flags);
/* Makes it on the worker if it is not there yet. */
CUresult fgv_context_make(struct fgv_context *context, uint64_t handle);
/* The object of a handle; NULL: the current one. NULL when bad. */
struct fgv_context *fgv_context_find(CUcontext context);
/* The current context of the calling thread: CUDA_SUCCESS and its object, or the error that a call without one gives.
 */
CUresult fgv_context_current(struct fgv_context **context);
/* The primary context of a device, by ordinal. Not made, not retained. */
CUresult fgv_context_primary(uint32_t ordinal, struct fgv_context **context);

#endif
