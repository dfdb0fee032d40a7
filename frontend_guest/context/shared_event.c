/*
 * Events that programs of this machine share (CU_EVENT_INTERPROCESS). Each is an ordinary event of the worker's, and a
 * row of the region's table of events, which all programs have mapped, and whose pages the device reaches
 * (ivshmem/event.h).
 *
 * Here they come and go. A program that opens events and never destroys them may lose their rows, once nobody else has
 * the event: then it has an ordinary one. shared_record.c is for what is done with them.
 */
#include "context/shared_event.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "call/call.h"
#include "call/device.h"
#include "context/context.h"
#include "cuda_api/prototypes.h"
#include "generated/hooks.h"
#include "ivshmem/event.h"
#include "region/client.h"

#define HANDLE_MAGIC UINT64_C(0x746e657669704746)
#define ROW_NAP_NS   500000
#define NR_ROW_NAPS  20000u /* ten seconds: what is outstanding waits for something that does not come */

_Static_assert(sizeof(struct fgv_shared_handle) <= sizeof(CUipcEventHandle), "a handle is what CUDA has room for");

_Atomic uint32_t fgv_nr_shared_events;

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
/* How many objects of this program have a row, of the life that the key tells. */
static struct {
    uint64_t key;
    uint32_t nr;
} holds[FGV_NR_EVENTS];
static uint64_t own_program; /* random; 0: not drawn yet */
static bool is_mapped;       /* the device has the table */

static bool draw(uint64_t *number)
{
    return syscall(SYS_getrandom, number, sizeof(*number), 0) == (long)sizeof(*number);
}

static CUresult map_table(void)
{
    struct fgv_call call;
    struct fgv_request_host_register *request = fgv_call_begin(&call, FGV_CALL_host_register, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_host_register){.address = (uint64_t)(uintptr_t)fgv_guest.region.events,
                                                  .bytes = FGV_EVENTS_BYTES};
    return fgv_call_wait(&call, NULL, 0);
}

/* What a program needs before its first shared event. With the books. */
static CUresult prepare(void)
{
    const int32_t *attributes = fgv_device_facts(fgv_thread.context->ordinal)->attributes;
    if (attributes[CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS] != 1) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (own_program == 0 && !draw(&own_program)) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    CUresult result = is_mapped ? CUDA_SUCCESS : map_table();
    is_mapped = result == CUDA_SUCCESS;
    return result;
}

/* A row for a new event; CUDA_ERROR_NOT_READY: later. With the books. */
static CUresult take_row(struct fgv_shared_handle *handle)
{
    CUresult result = prepare();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!draw(&handle->key)) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    handle->magic = HANDLE_MAGIC;
    handle->program = own_program;
    handle->index = fgv_event_take(&fgv_guest.region, fgv_guest.index, &handle->key);
    return handle->index == FGV_EVENT_NONE    ? CUDA_ERROR_OUT_OF_MEMORY
           : handle->index == FGV_EVENT_LATER ? CUDA_ERROR_NOT_READY
                                              : CUDA_SUCCESS;
}

/* The row of another program's. With the books. */
static CUresult join_row(struct fgv_shared_handle *handle)
{
    CUresult result = prepare();
    if (result == CUDA_SUCCESS && handle->program == own_program) {
        result = CUDA_ERROR_INVALID_CONTEXT; /* its own */
    }
    if (result == CUDA_SUCCESS && !fgv_event_join(&fgv_guest.region, fgv_guest.index, handle->index, handle->key)) {
        result = CUDA_ERROR_MAP_FAILED;
    }
    return result;
}

static CUresult get_row_now(struct fgv_shared_handle *handle, CUresult (*get)(struct fgv_shared_handle *handle))
{
    pthread_mutex_lock(&books);
    const CUresult result = get(handle);
    if (result == CUDA_SUCCESS && holds[handle->index].key != handle->key) {
        holds[handle->index].key = handle->key;
        holds[handle->index].nr = 0;
    }
    if (result == CUDA_SUCCESS) {
        holds[handle->index].nr++;
    }
    pthread_mutex_unlock(&books);
    return result;
}

static CUresult get_row(struct fgv_shared_handle *handle, CUresult (*get)(struct fgv_shared_handle *handle))
{
    CUresult result = get_row_now(handle, get);
    for (uint32_t i = 0; result == CUDA_ERROR_NOT_READY && i < NR_ROW_NAPS; i++) {
        nanosleep(&(struct timespec){.tv_nsec = ROW_NAP_NS}, NULL);
        result = get_row_now(handle, get);
    }
    return result == CUDA_ERROR_NOT_READY ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* Nothing is to be left where the row has gone to somebody else. */
static void put_row(const struct fgv_shared_event *shared)
{
    const uint32_t index = shared->handle.index;
    pthread_mutex_lock(&books);
    if (holds[index].key == shared->handle.key && --holds[index].nr == 0 && fgv_shared_event_has_row(shared)) {
        fgv_event_leave(&fgv_guest.region, fgv_guest.index, index);
    }
    pthread_mutex_unlock(&books);
}

/* An event with a row of the table: a new one, or that of the handle. */
static CUresult make(CUevent *event, unsigned int flags, struct fgv_shared_handle *handle,
                     CUresult (*get)(struct fgv_shared_handle *handle))
{
    CUresult result = cuEventCreate(event, flags & ~(unsigned int)CU_EVENT_INTERPROCESS);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_shared_event *shared = calloc(1, sizeof(*shared));
    result = shared ? get_row(handle, get) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(shared);
        cuEventDestroy_v2(*event);
        *event = NULL;
        return result;
    }
    *shared = (struct fgv_shared_event){.context = fgv_thread.context, .handle = *handle};
    atomic_fetch_add_explicit(&fgv_nr_shared_events, 1, memory_order_relaxed);
    fgv_handle_set_object(FGV_HANDLE_EVENT, fgv_handle_number(*event), (uint8_t *)shared + 1);
    return CUDA_SUCCESS;
}

bool fgv_before_cuEventCreate(CUevent *phEvent, unsigned int Flags, CUresult *answer)
{
    if ((Flags & CU_EVENT_INTERPROCESS) == 0) {
        return false;
    }
    *answer = fgv_call_allowed();
    if (*answer == CUDA_SUCCESS && (Flags & CU_EVENT_DISABLE_TIMING) == 0) {
        *answer = CUDA_ERROR_INVALID_VALUE;
    }
    if (*answer == CUDA_SUCCESS) {
        struct fgv_shared_handle handle = {0};
        CUevent event;
        *answer = make(&event, Flags, &handle, take_row);
        if (*answer == CUDA_SUCCESS) {
            *phEvent = event;
        }
    }
    return true;
}

void fgv_shared_event_destroy(struct fgv_shared_event *shared)
{
    put_row(shared);
    atomic_fetch_sub_explicit(&fgv_nr_shared_events, 1, memory_order_relaxed);
    free(shared);
}

bool fgv_shared_event_forget(struct fgv_shared_event *shared, const struct fgv_context *context)
{
    if (shared->context != context) {
        return false;
    }
    for (uint32_t i = 0; i < FGV_NR_EVENT_WORDS && fgv_shared_event_has_row(shared); i++) {
        const struct fgv_event_place place = {.number = shared->lanes[i].number, .word = i};
        fgv_event_finish(fgv_shared_event_row(shared), &place);
    }
    fgv_shared_event_destroy(shared);
    return true;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pHandle || !event) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct fgv_shared_event *shared = fgv_shared_event_find(event);
    if (!shared || shared->handle.program != own_program) { /* nobody can pass on what another program made */
        return CUDA_ERROR_INVALID_HANDLE;
    }
    memset(pHandle, 0, sizeof(*pHandle));
    memcpy(pHandle, &shared->handle, sizeof(shared->handle));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    struct fgv_shared_handle given;
    CUevent event;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memcpy(&given, &handle, sizeof(given));
    if (!phEvent) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (given.magic != HANDLE_MAGIC) {
        return CUDA_ERROR_MAP_FAILED;
    }
    result = make(&event, CU_EVENT_DISABLE_TIMING, &given, join_row);
    if (result == CUDA_SUCCESS) {
        *phEvent = event;
    }
    return result;
}
