/*
 * One call on its way to the worker. The generated stubs and the hand-written calls use nothing else to talk to the
 * host.
 *
 *     struct fgv_call call;
 *     struct fgv_request_x *request = fgv_call_begin(&call, FGV_CALL_x, sizeof *request, payload_bytes);
 *     if (!request) {
 *         return call.error;
 *     }
 *     ... fill *request, and payload_bytes at call.payload; both lie in the ring ...
 *     return fgv_call_post(&call);            or     return fgv_call_wait(&call, &reply, sizeof reply);
 *
 * Between begin and post (or wait) nothing may return, wait or begin another call: the worker stops at a record that is
 * reserved and not published. So everything that can fail is looked at before begin, streams included.
 */
#ifndef FRONTEND_GUEST_CALL_H
#define FRONTEND_GUEST_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/handles.h"
#include "cuda_api/types.h"
#include "cuda_api/wire.h"
#include "ivshmem/ring.h"

struct fgv_context;

/* What calls ask of files above. face/upward.c fills it. */
struct fgv_call_ops {
    /* Makes the context on the worker, where it is not there yet. */
    CUresult (*context_make)(struct fgv_context *context, uint64_t handle);
    /* Prints what kernels printed. */
    void (*output_print)(void);
    /* While somebody watches: before a call is sent. */
    void (*before)(uint16_t number);
};
extern const struct fgv_call_ops *fgv_call_ops;

struct fgv_call {
    struct fgv_record *record;
    uint64_t position;
    uint8_t *payload;
    CUresult error;    /* why begin gave NULL */
    uint32_t response; /* slot */
    uint16_t number;
};

/* Room for the request, or NULL with call->error: not initialised, no current context, an earlier error, nobody there.
 */
void *fgv_call_begin(struct fgv_call *call, uint16_t number, uint32_t request_bytes, uint32_t payload_bytes);
/* As begin, for calls about libraries, which need no current context. */
void *fgv_call_begin_anywhere(struct fgv_call *call, uint16_t number, uint32_t request_bytes, uint32_t payload_bytes);
/* The same for a context that need not be current, nor exist on the worker yet (0: none), and past earlier errors. */
void *fgv_call_begin_for(struct fgv_call *call, uint16_t number, uint32_t request_bytes, uint32_t payload_bytes,
                         uint64_t context);
/* Publishes a call that nobody waits for: CUDA_SUCCESS, unless a stream is captured; then it waits. */
CUresult fgv_call_post(struct fgv_call *call);
/* Before a request that is waited for in another way than by fgv_call_wait: whose turn at a CPU is worth something when
 * the answer comes, so that the host may see to it that it has one. */
void fgv_call_tell_who_waits(void);
/* Publishes a call and waits for its result. `reply` is filled when that is CUDA_SUCCESS. */
CUresult fgv_call_wait(struct fgv_call *call, void *reply, uint32_t reply_bytes);
/* The same, looking meanwhile at what the caller looks at, too: keep_waiting asks fgv_client_keep_waiting itself. */
CUresult fgv_call_wait_while(struct fgv_call *call, void *reply, uint32_t reply_bytes, fgv_keep_waiting_fn keep_waiting,
                             void *context);
/* What a call gives before it looks at its arguments: not initialised, no current context; in a host function; after a
 * fault. */
CUresult fgv_call_allowed(void);
/* The same of calls that may be made after a fault; and of those that a host function may make, too. */
CUresult fgv_call_permitted(void);
CUresult fgv_call_allowed_anywhere(void);
/* The same, and the errors that earlier work left for it. */
CUresult fgv_call_healthy(void);
/* The error of a fault, after which nothing of the process runs on the device any more. */
CUresult fgv_call_sticky_error(void);
/* Gives back the response slot that the calling thread keeps. */
void fgv_call_thread_ends(void);

/* Prints what kernels printed, if the worker has something. For calls that have just waited. */
void fgv_call_print_output(void);
/*
 * Who looks after managed memory watches the calls. The lower half counts what the program has at hand of it. The upper
 * half is advanced before the program gets more: a call that found nobody watching, and is in the ring before the
 * watcher's own next call, is seen by that; one that came later sees that the word has changed, and begins again.
 */
extern _Atomic uint64_t fgv_call_watch;
#define FGV_WATCH_ONE     UINT64_C(1)
#define FGV_WATCH_ADVANCE (UINT64_C(1) << 32)

static inline bool fgv_call_is_watched(uint64_t watch)
{
    return __builtin_expect((uint32_t)watch != 0, 0);
}
/* Work goes on, without a call, that may use what the program wrote. */
void fgv_call_work_follows(void);
/* Streams that the program is capturing. While there are any, every call is answered: CUDA's rules about captures are
 * kept by the device library, and its word is due at once. */
extern _Atomic uint32_t fgv_nr_captures;

#endif
