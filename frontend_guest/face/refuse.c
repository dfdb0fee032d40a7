/* A call that is not carried is counted and traced as any call. */
#include "base/log.h"
#include "base/trace.h"
#include "cuda_api/refusals.h"

CUresult fgv_refuse(const char *name, CUresult result)
{
    fgv_log_name("a call that is not carried", name);
    if (fgv_tracing) {
        struct fgv_traced traced;
        fgv_trace_begin(&traced);
        fgv_trace_end_named(&traced, name, result);
    }
    return result;
}
