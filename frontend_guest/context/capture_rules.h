/*
 * Captures that the program began, and CUDA's rules about threads and modes. The worker serves all threads of the
 * program on one thread and begins captures relaxed, so the rules are kept here: what is potentially unsafe is refused
 * where CUDA refuses it, and the captures that forbid it become invalid.
 */
#ifndef FRONTEND_GUEST_CAPTURE_RULES_H
#define FRONTEND_GUEST_CAPTURE_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "call/call.h"
#include "cuda_api/types.h"

bool fgv_capture_forbids_this_thread(void);
/* Whether CUDA forbids the calling thread what is potentially unsafe during captures; they are invalid then. */
static inline bool fgv_capture_forbids(void)
{
    return __builtin_expect(atomic_load_explicit(&fgv_nr_captures, memory_order_relaxed) != 0, 0) &&
           fgv_capture_forbids_this_thread();
}

/* All streams below are numbers of the wire. */

/* Enters a capture that the calling thread begins in its current context. */
CUresult fgv_capture_add(uint64_t stream, CUstreamCaptureMode mode, bool is_into_graph);
/* The stream is gone, and a capture that began in it. */
void fgv_capture_forget(uint64_t stream);
/* Captures into graphs of the program's own that are over: each may have given a graph another shape. */
uint64_t fgv_capture_nr_into_graphs(void);
/* Whether a capture began in the stream, and whether one did that another thread must end. */
bool fgv_capture_is_begun(uint64_t stream);
bool fgv_capture_is_others(uint64_t stream);
/* Whether it goes into a graph that the program had. */
bool fgv_capture_is_into_graph(uint64_t stream);
/* Tells the worker that the capture which the stream takes part in is invalid. */
void fgv_capture_tell_broken(uint64_t stream, uint64_t context);
/* The same in the current context. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED. */
CUresult fgv_capture_break(uint64_t stream);
/* What the worker knows of the stream; what it depends on comes in the chunk, if there is one. */
CUresult fgv_capture_ask(uint64_t stream, uint32_t chunk, struct fgv_reply_capture_info *reply);
/* Whether work given to the stream now is captured. */
bool fgv_capture_is_active(uint64_t stream);

#endif
