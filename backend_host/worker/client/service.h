/*
 * Between the worker and its handlers. A handler carries out one request of a client on the device library: those that
 * the table of calls describes are generated (generated/handlers.c), the others are written by hand in this folder;
 * both look alike and stand in fgv_services.
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

struct fgv_worker;

/*
 * A record in private memory. fixed is the call's struct fgv_request_<call>, aligned to 8; payload is what follows it
 * in the record.
 */
struct fgv_request {
    const struct fgv_wire_header *header;
    const void *fixed;
    const uint8_t *payload;
    uint32_t payload_bytes;
};

/* reply: reply_bytes of the service, zeroed and aligned to 8; NULL where that is 0. */
typedef CUresult (*fgv_serve)(struct fgv_worker *worker, const struct fgv_request *request, void *reply);

#define FGV_NO_HANDLE 0xffff

struct fgv_service {
    const char *name;
    fgv_serve serve;
    uint16_t number;
    uint8_t answer, cost, order, waits; /* enum fgv_answer, fgv_cost, fgv_order, fgv_waits */
    uint16_t request_bytes;             /* struct fgv_request_<call> alone, without header and payload */
    uint16_t reply_bytes;
    uint16_t stream_offset; /* in fixed: where the guest's number (uint64_t) of its stream stands, or FGV_NO_HANDLE */
    uint16_t event_offset;  /* likewise of its event */
    bool has_payload;
    bool needs_context; /* a current one */
};

extern const struct fgv_service fgv_services[]; /* by number */
extern const unsigned int fgv_nr_services;

/* NULL for a number that is never requested. */
const struct fgv_service *fgv_service_find(uint16_t number);

/* What the handlers need of the worker. */

const struct fgv_driver *fgv_worker_driver(struct fgv_worker *worker);

/*
 * The driver's object behind a number of the guest's. CUDA_ERROR_INVALID_HANDLE (CUDA_ERROR_INVALID_CONTEXT for a
 * context) when there is none of this kind. Stream 0 is the legacy default stream and always there.
 */
CUresult fgv_worker_find(struct fgv_worker *worker, enum fgv_handle_kind kind, uint64_t handle, void **native);

/* The device library's device that the guest knows as `device`, or CUDA_ERROR_INVALID_DEVICE. */
CUresult fgv_worker_device(struct fgv_worker *worker, int32_t device, CUdevice *native);

/* Whether a number is free and one more fits: asked before the driver makes the object, so that no bind fails after. */
CUresult fgv_worker_can_bind(struct fgv_worker *worker, enum fgv_handle_kind kind, uint64_t handle);
CUresult fgv_worker_bind(struct fgv_worker *worker, enum fgv_handle_kind kind, uint64_t handle, void *native);

/* As fgv_worker_bind, for what the driver destroys together with its parent: unbinding the parent unbinds it too. */
CUresult fgv_worker_bind_under(struct fgv_worker *worker, enum fgv_handle_kind kind, uint64_t handle, void *native,
                               enum fgv_handle_kind parent_kind, uint64_t parent);
void fgv_worker_unbind(struct fgv_worker *worker, enum fgv_handle_kind kind, uint64_t handle);

#endif
