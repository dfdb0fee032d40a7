/* Events of this process in others, and theirs in this one: a handle says where the file is found (shared_file.h). */
#include <string.h>
#include <unistd.h>

#include "cuda_api/prototypes.h"
#include "stream/shared_event.h"
#include "stream/stream.h"

#define HANDLE_MAGIC UINT64_C(0x746e76456370494f)

struct handle {
    uint64_t magic;
    struct sgp_shared_place place;
};

_Static_assert(sizeof(struct handle) <= sizeof(CUipcEventHandle), "a handle is what CUDA has room for");

/* An importer cannot pass an event on. */
SGP_EXPORT CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    struct handle handle = {.magic = HANDLE_MAGIC};
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!pHandle || !event) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!sgp_object_is(event, SGP_EVENT) || !event->shared || !sgp_shared_event_place(event->shared, &handle.place)) {
        return sgp_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    memset(pHandle, 0, sizeof(*pHandle));
    memcpy(pHandle, &handle, sizeof(handle));
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    struct CUctx_st *context;
    struct sgp_shared_event *shared;
    struct handle given;
    CUresult result = sgp_with_argument(sgp_enter(&context), phEvent);

    if (result) {
        return result;
    }
    memcpy(&given, &handle, sizeof(given));
    if (given.magic == HANDLE_MAGIC && given.place.process == (uint64_t)getpid()) {
        return sgp_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    shared = given.magic == HANDLE_MAGIC ? sgp_shared_event_open(context, &given.place) : NULL;
    if (!shared) {
        return sgp_leave(CUDA_ERROR_MAP_FAILED);
    }
    *phEvent = sgp_event_new(context, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, shared);
    if (!*phEvent) {
        sgp_shared_event_end(shared);
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    return sgp_leave(CUDA_SUCCESS);
}
