/*
 * Stream capture, as far as the guest must know of it: which captures the program began, in which thread and mode. What
 * is captured, and whether a stream takes part, is the device library's knowledge; it is asked while there is a
 * capture, and never otherwise.
 */
#ifndef FRONTEND_GUEST_CAPTURE_H
#define FRONTEND_GUEST_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "call.h"
#include "cuda_api/types.h"

/* Whether work given to the stream now is captured. */
bool fgv_capture_is_active(CUstream stream);
/* Invalidates the capture that the stream takes part in. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED. */
CUresult fgv_capture_break(uint64_t stream);
/* The stream is gone, and a capture that began in it. */
void fgv_capture_forget(uint64_t stream);

#endif
