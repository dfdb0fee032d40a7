/*
 * Between the worker and its handlers. A handler carries out one request of a client on the device library: those that
 * the table of calls describes are generated (generated/handlers.c), the others are written by hand in this folder;
 * both look alike and stand in fgw_services.
 *
 * The caller of a handler has copied the record to private memory, checked that it is at least as long as the service
 * says, and made the context that the header names current. All handlers of a worker run on one thread. The result
 * travels beside the reply, which the handler need not touch when it fails.
 */
#ifndef BACKEND_HOST_SERVICE_H
#define BACKEND_HOST_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_api/driver.h"
#include "cuda_api/types.h"
#include "cuda_api/wire.h"

struct fgw_worker;

/*
 * A record in private memory. fixed is the call's struct fgv_request_<call>, aligned to 8; payload is what follows it
 * in the record.
 */
struct fgw_request {
    const struct fgv_wire_header *header;
    const void *fixed;
    const uint8_t *payload;
    uint32_t payload_bytes;
};

/* reply: reply_bytes of the service, zeroed and aligned to 8; NULL where that is 0. */
typedef CUresult (*fgw_serve)(struct fgw_worker *worker, const struct fgw_request *request, void *reply);

#define FGW_NO_HANDLE 0xffff

struct fgw_service {
    const char *name;
    fgw_serve serve;
    uint16_t number;
    uint8_t answer, cost, order, waits; /* enum fgv_answer, fgv_cost, fgv_order, fgv_waits */
    uint16_t request_bytes;             /* struct fgv_request_<call> alone, without header and payload */
    uint16_t reply_bytes;
    uint16_t stream_offset; /* in fixed: where the guest's number (uint64_t) of its stream stands, or FGW_NO_HANDLE */
    uint16_t event_offset;  /* likewise of its event */
    bool has_payload;
    bool needs_context; /* a current one */
};

extern const struct fgw_service fgw_services[]; /* by number */
extern const unsigned int fgw_nr_services;

/* NULL for a number that is never requested. */
const struct fgw_service *fgw_service_find(uint16_t number);

/* The handlers need this of the worker. */

const struct fgv_driver *fgw_worker_driver(struct fgw_worker *worker);

/*
 * The driver's object behind a number of the guest's. CUDA_ERROR_INVALID_HANDLE (CUDA_ERROR_INVALID_CONTEXT for a
 * context) when there is none of this kind. Stream 0 is the legacy default stream and always there.
 */
CUresult fgw_worker_find(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t handle, void **native);

/* The device library's device that the guest knows as `device`, or CUDA_ERROR_INVALID_DEVICE. */
CUresult fgw_worker_device(struct fgw_worker *worker, int32_t device, CUdevice *native);

/* Where an address that the guest names is on its device now: of a module variable it may have been told another one
 * (told.h). */
uint64_t fgw_worker_address(struct fgw_worker *worker, uint64_t address);

/* Tells whether a number is free and one more fits: asked before the driver makes the object, so that no bind fails
 * after. */
CUresult fgw_worker_can_bind(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t handle);
CUresult fgw_worker_bind(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t handle, void *native);

/* As fgw_worker_bind, for what was made with flags that the driver does not tell again. */
CUresult fgw_worker_bind_with_flags(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t handle, void *native,
                                    uint32_t flags);

/* As fgw_worker_bind, for what the driver destroys together with its parent: unbinding the parent unbinds it too. */
CUresult fgw_worker_bind_under(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t handle, void *native,
                               enum fgv_handle_kind parent_kind, uint64_t parent);
void fgw_worker_unbind(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t handle);

#endif
