/*
 * Joins the generated stubs to the generated handlers without anything between: what fgv_call_begin hands out is what
 * the handler gets. Handles are bound in one flat array; the device library is the one the test opens.
 */
#include <stdlib.h>
#include <string.h>

#include "backend_host/worker/client/service.h"
#include "call/call.h"
#include "context/capture_rules.h"
#include "context/stream.h"
#include "memory/memory.h"

struct fgw_worker {
    struct fgv_driver driver;
};

static struct fgw_worker worker;
static struct {
    enum fgv_handle_kind kind;
    uint64_t handle;
    void *native;
} bound[64];

CUresult loopback_allowed;  /* what fgv_call_allowed answers */
CUresult loopback_healthy;  /* and fgv_call_healthy */
uint64_t loopback_handles;  /* how many numbers are out */
uint64_t loopback_requests; /* how many records were sent */
uint64_t loopback_posts;    /* how many of them without waiting */
uint32_t loopback_bound;    /* how many handles the worker knows */

static uint64_t storage[128];
_Atomic uint32_t fgv_nr_captures;

bool fgv_capture_forbids_this_thread(void)
{
    return true;
}

unsigned int loopback_open(void *library)
{
    return fgv_driver_load(&worker.driver, library);
}

const struct fgv_driver *fgw_worker_driver(struct fgw_worker *any)
{
    return &any->driver;
}

static int place(enum fgv_handle_kind kind, uint64_t handle)
{
    for (int i = 0; i < 64; i++) {
        if (bound[i].kind == kind && bound[i].handle == handle) {
            return i;
        }
    }
    return -1;
}

CUresult fgw_worker_find(struct fgw_worker *any, enum fgv_handle_kind kind, uint64_t handle, void **native)
{
    (void)any;
    if (kind == FGV_HANDLE_STREAM && handle == 0) {
        *native = NULL;
        return CUDA_SUCCESS;
    }
    int i = place(kind, handle);
    if (i < 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *native = bound[i].native;
    return CUDA_SUCCESS;
}

CUresult fgw_worker_device(struct fgw_worker *any, int32_t device, CUdevice *native)
{
    (void)any;
    *native = device + 100;
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

uint64_t fgw_worker_address(struct fgw_worker *any, uint64_t address)
{
    (void)any;
    return address;
}

CUresult fgw_worker_can_bind(struct fgw_worker *any, enum fgv_handle_kind kind, uint64_t handle)
{
    (void)any;
    return handle != 0 && place(kind, handle) < 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult fgw_worker_bind(struct fgw_worker *any, enum fgv_handle_kind kind, uint64_t handle, void *native)
{
    (void)any;
    int i = place(0, 0);
    bound[i].kind = kind;
    bound[i].handle = handle;
    bound[i].native = native;
    loopback_bound++;
    return CUDA_SUCCESS;
}

CUresult fgw_worker_bind_with_flags(struct fgw_worker *any, enum fgv_handle_kind kind, uint64_t handle, void *native,
                                    uint32_t flags)
{
    (void)flags;
    return fgw_worker_bind(any, kind, handle, native);
}

CUresult fgw_worker_bind_under(struct fgw_worker *any, enum fgv_handle_kind kind, uint64_t handle, void *native,
                               enum fgv_handle_kind parent_kind, uint64_t parent)
{
    if (place(parent_kind, parent) < 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return fgw_worker_bind(any, kind, handle, native);
}

void fgw_worker_unbind(struct fgw_worker *any, enum fgv_handle_kind kind, uint64_t handle)
{
    (void)any;
    memset(&bound[place(kind, handle)], 0, sizeof *bound);
    loopback_bound--;
}

/* Serves a request as the worker would, with a reply that starts as garbage. */
CUresult loopback_serve(uint16_t number, const void *fixed, void *reply)
{
    const struct fgw_service *service = fgw_service_find(number);
    const struct fgv_wire_header header = {.call = number};
    const struct fgw_request request = {.header = &header, .fixed = fixed};
    return service->serve(&worker, &request, reply);
}

void *fgv_call_begin(struct fgv_call *call, uint16_t number, uint32_t request_bytes, uint32_t payload_bytes)
{
    if (request_bytes != fgv_call_info(number)->request_bytes || payload_bytes != 0) {
        abort();
    }
    call->error = loopback_allowed;
    call->number = number;
    memset(storage, 0xa5, sizeof storage);
    return loopback_allowed == CUDA_SUCCESS ? storage : NULL;
}

void *fgv_call_begin_anywhere(struct fgv_call *call, uint16_t number, uint32_t request_bytes, uint32_t payload_bytes)
{
    return fgv_call_begin(call, number, request_bytes, payload_bytes);
}

CUresult fgv_call_wait(struct fgv_call *call, void *reply, uint32_t reply_bytes)
{
    if (reply_bytes != fgv_call_info(call->number)->reply_bytes) {
        abort();
    }
    loopback_requests++;
    return loopback_serve(call->number, storage, reply);
}

CUresult fgv_call_post(struct fgv_call *call)
{
    if (fgv_call_info(call->number)->answer != FGV_ANSWER_ASYNC) {
        abort();
    }
    loopback_posts++;
    return fgv_call_wait(call, NULL, 0);
}

CUresult fgv_call_allowed(void)
{
    return loopback_allowed;
}

CUresult fgv_call_healthy(void)
{
    return loopback_healthy;
}

CUresult fgv_handle_new(enum fgv_handle_kind kind, uint64_t *handle)
{
    static uint64_t next = 0x1000;
    *handle = next++ | (uint64_t)kind << 32;
    loopback_handles++;
    return CUDA_SUCCESS;
}

CUresult fgv_handle_check(enum fgv_handle_kind kind, uint64_t handle)
{
    return handle >> 32 == (uint64_t)kind ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void fgv_handle_drop(enum fgv_handle_kind kind, uint64_t handle)
{
    if (fgv_handle_check(kind, handle) != CUDA_SUCCESS) {
        abort();
    }
    loopback_handles--;
}

uint64_t fgv_stream_wire(CUstream stream)
{
    uint64_t handle = (uint64_t)(uintptr_t)stream;
    return handle == 0 || fgv_handle_check(FGV_HANDLE_STREAM, handle) == CUDA_SUCCESS ? handle : FGV_STREAM_INVALID;
}

/* Memory of the program lies below 1 MiB here. */
bool fgv_memory_has(CUdeviceptr address, uint32_t element_bytes, size_t width, size_t height, size_t pitch)
{
    return address + (height - 1) * pitch + width * element_bytes <= 0x100000;
}

/* The last 64 KiB of that are part of a slab. */
bool fgv_memory_overruns(CUdeviceptr address, uint32_t element_bytes, size_t width, size_t height, size_t pitch)
{
    return address >= 0xf0000 && address < 0x100000 && !fgv_memory_has(address, element_bytes, width, height, pitch);
}

CUresult fgv_memory_settle(CUdeviceptr address)
{
    return address == 0xbad ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}
