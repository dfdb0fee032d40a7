#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "cuda_api/procs.h"
#include "cuda_api/prototypes.h"
#include "cuda_api/refusals.h"

/* Whether a call of this name that is carried has another form for the per-thread default stream. */
static bool has_twin(const char *name)
{
    int ignored;
    return fgv_proc_find(name, INT_MAX, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &ignored) !=
           fgv_proc_find(name, INT_MAX, CU_GET_PROC_ADDRESS_DEFAULT, &ignored);
}

fgv_proc fgv_refusal_find(const char *name, int cuda_version, uint64_t flags, int *status)
{
    const bool wants_per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    int driver_version = 0;
    fgv_proc found = NULL;
    if (wants_per_thread && *status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT && has_twin(name)) {
        return NULL; /* the twin is newer, and the driver gives nothing else */
    }
    cuDriverGetVersion(&driver_version);
    for (size_t i = 0; i < fgv_nr_refusals; i++) {
        const struct fgv_refusal *refusal = &fgv_refusals[i];
        if (strcmp(refusal->name, name) != 0 || refusal->since > driver_version) {
            continue;
        }
        if (refusal->since <= cuda_version) {
            found = wants_per_thread && refusal->per_thread ? refusal->per_thread : refusal->symbol;
        } else if (!found) {
            *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        }
    }
    if (found) {
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
    }
    return found;
}
