/*
 * The span: addresses for all linear memory of the program, which it proposes and the host takes. In this process
 * nothing can come to lie there, so no address of the device's is one of the host's, too.
 */
#ifndef FRONTEND_GUEST_SPAN_H
#define FRONTEND_GUEST_SPAN_H

#include "cuda_api/types.h"

/* Before the host is asked for memory: proposes the span, once. Where the host takes none, memory lies where its driver
 * puts it. An error: there is no host any more. */
CUresult fgv_span_open(void);

#endif
