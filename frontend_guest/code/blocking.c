/* Asked at the first launch, as programs set it themselves before they use the device. */
#include "code/blocking.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "call/call.h"
#include "cuda_api/prototypes.h"

enum asked { UNKNOWN = 0, NO = 1, YES = 2 };

static _Atomic uint32_t is_asked;

static bool is_blocking(void)
{
    uint32_t asked = atomic_load_explicit(&is_asked, memory_order_relaxed);
    if (__builtin_expect(asked == UNKNOWN, 0)) {
        const char *wanted = getenv("CUDA_LAUNCH_BLOCKING");
        asked = wanted && strcmp(wanted, "0") != 0 && *wanted ? YES : NO;
        atomic_store_explicit(&is_asked, asked, memory_order_relaxed);
    }
    return __builtin_expect(asked == YES, 0);
}

CUresult fgv_launch_settle(CUresult result, CUstream stream)
{
    return result == CUDA_SUCCESS && is_blocking() && atomic_load_explicit(&fgv_nr_captures, memory_order_relaxed) == 0
               ? cuStreamSynchronize(stream)
               : result;
}
