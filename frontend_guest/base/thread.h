/*
 * What the library keeps for each thread of the program. The part that every call reads lies in thread-local storage,
 * which a library loaded with dlopen has little of, so it is small; the rest hangs on `more`, made when first needed
 * and freed when the thread ends.
 */
#ifndef FRONTEND_GUEST_THREAD_H
#define FRONTEND_GUEST_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"

#define FGV_MAX_CONTEXT_DEPTH 64u

struct fgv_context;

/* A context that is not current now: its handle, 0 for none, and the object behind it, which outlives the handle. */
struct fgv_below {
    uint64_t handle;
    struct fgv_context *context;
};

/* What CU_STREAM_PER_THREAD means to one thread in one context. */
struct fgv_own_stream {
    struct fgv_own_stream *next;
    uint64_t context; /* handle */
    uint64_t stream;
};

struct fgv_thread_more {
    struct fgv_below below[FGV_MAX_CONTEXT_DEPTH]; /* contexts under the current one, the deepest first */
    uint32_t depth;
    CUstreamCaptureMode capture_mode;
    struct fgv_own_stream *streams;
};

struct fgv_thread {
    struct fgv_context *context; /* the object behind `current`, kept so that a call needs no look-up */
    uint64_t current;            /* handle of the current context, 0: none */
    struct fgv_thread_more *more;
    uint32_t response;      /* response slot that this thread keeps, + 1 */
    uint32_t is_registered; /* its end will be noticed */
    uint32_t is_ours;       /* its calls are this library's own, and not work of the program's */
    uint32_t id;            /* see fgv_thread_id; 0: not asked for yet */
    uint32_t is_called;     /* by the device: in a host function of the program's, which may make no calls */
};

extern _Thread_local struct fgv_thread fgv_thread __attribute__((tls_model("initial-exec")));

/* Gives back what the calling thread, which ends, holds of the client's: see face/upward.c. */
extern void (*fgv_thread_ends)(void);

/* The rest of the thread's record; NULL without memory. */
struct fgv_thread_more *fgv_thread_more(void);
/* The calling thread as the kernel knows it. */
uint32_t fgv_thread_id(void);
/* A thread that libc knows, detached, with the signals blocked that are for the program's own threads. False where none
 * can be made: without memory, or where the program was linked without libpthread and its libc is older than 2.34.
 */
bool fgv_thread_make(void *(*run)(void *argument), void *argument);
/* Sees to it that what the thread holds is given back when it ends. */
void fgv_thread_register(void);

#endif
