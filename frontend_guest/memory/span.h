/*
 * The span: addresses for all linear memory of the program, which it proposes and the host takes. In this process
 * nothing can come to lie there, so no address of the device's is one of the host's, too.
 */
#ifndef FRONTEND_GUEST_SPAN_H
#define FRONTEND_GUEST_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"

/* Before the host is asked for memory: proposes the span, once. Where the host takes none, memory lies where its driver
 * puts it. An error: there is no host any more. */
CUresult fgv_span_open(void);
/* True of an address of the span, allocated or not: the program has nothing of its own there. */
bool fgv_span_has(uint64_t address);

#endif
