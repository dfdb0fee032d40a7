/*
 * Opening the device library, and taking a client: its region, its bells, its vGPU.
 */
#define _GNU_SOURCE
#include "client/attach.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/current.h"
#include "client/printing.h"
#include "client/state.h"
#include "client/taken.h"
#include "ivshmem/bell.h"
#include "ivshmem/region.h"
#include "page/control.h"
#include "page/go_over.h"
#include "page/grant.h"
#include "page/layout.h"
#include "page/room.h"

int fgw_worker_load(const char *library, struct fgv_driver *driver, char *error, uint32_t error_bytes)
{
    void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!opened) {
        snprintf(error, error_bytes, "cannot open the device library: %s", dlerror());
        return CUDA_ERROR_NOT_FOUND;
    }
    fgv_driver_load(driver, opened);
    if (!driver->cuInit || !driver->cuDeviceGet || !driver->cuDeviceGetCount || !driver->cuDriverGetVersion ||
        !driver->cuDeviceGetName || !driver->cuDeviceGetPCIBusId || !driver->cuDeviceTotalMem_v2 ||
        !driver->cuDeviceGetAttribute || !driver->cuDevicePrimaryCtxRetain || !driver->cuDevicePrimaryCtxRelease_v2 ||
        !driver->cuCtxCreate_v2 || !driver->cuCtxDestroy_v2 || !driver->cuCtxPopCurrent_v2 ||
        !driver->cuCtxSetCurrent || !driver->cuEventCreate || !driver->cuEventRecord || !driver->cuEventQuery ||
        !driver->cuEventDestroy_v2 || !driver->cuStreamSynchronize) {
        snprintf(error, error_bytes, "%s is no CUDA driver library: calls are missing that every driver has", library);
        return CUDA_ERROR_NOT_FOUND;
    }
    CUresult result = driver->cuInit(0);
    if (result != CUDA_SUCCESS) {
        snprintf(error, error_bytes, "%s: cuInit gives CUDA error %d", library, (int)result);
    }
    return (int)result;
}

/* Maps the region where the guest program has it, after a first look at where that is. */
static CUresult map_region(struct fgw_worker *worker, const struct fgw_assignment *assignment, char *error,
                           uint32_t error_bytes)
{
    uint64_t bytes = assignment->region_bytes;
    struct stat status;
    if (fstat(assignment->region_fd, &status) != 0 || (uint64_t)status.st_size < bytes) {
        snprintf(error, error_bytes, "the region is shorter than %llu bytes", (unsigned long long)bytes);
        return CUDA_ERROR_MAP_FAILED;
    }
    uint8_t *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, assignment->region_fd, 0);
    if (base == MAP_FAILED) {
        snprintf(error, error_bytes, "cannot map the region: %s", strerror(errno));
        return CUDA_ERROR_MAP_FAILED;
    }
    enum fgv_region_status found = fgv_region_check(base, bytes, assignment->table_hash, &worker->region);
    if (found != FGV_REGION_OK) {
        snprintf(error, error_bytes, "%s", fgv_region_status_text(found));
        munmap(base, bytes);
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    }
    worker->client = &worker->region.clients[assignment->client];
    if (!fgv_client_read_layout(&worker->region, assignment->client, &worker->layout)) {
        snprintf(error, error_bytes, "client %u: its entry does not make sense", assignment->client);
        return CUDA_ERROR_INVALID_VALUE;
    }
    void *wanted = (void *)(uintptr_t)worker->layout.address;
    void *placed =
        mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, assignment->region_fd, 0);
    if (placed != wanted) {
        snprintf(error, error_bytes, "client %u: address %p is taken in the worker", assignment->client, wanted);
        if (placed != MAP_FAILED) {
            munmap(placed, bytes);
        }
        return CUDA_ERROR_MAP_FAILED;
    }
    munmap(base, bytes);
    found = fgv_region_check(placed, bytes, assignment->table_hash, &worker->region);
    worker->client = &worker->region.clients[assignment->client];
    return found == FGV_REGION_OK ? CUDA_SUCCESS : CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
}

_Static_assert(sizeof(((struct fgw_assignment *)NULL)->guest_bells) == FGV_NR_GUEST_VECTORS * sizeof(int), "bells");

void fgw_client_expect_bell(struct fgw_worker *worker)
{
    fgv_host_bell_prepare(&worker->bell);
}

/* From here on the region's way of waking is this client's. One whose guest has no bell is served as under POLL. */
static CUresult take_bells(struct fgw_worker *worker, const struct fgw_assignment *assignment)
{
    if (worker->region.wake != FGV_WAKE_BELL) {
        return CUDA_SUCCESS;
    }
    uint32_t vector = worker->layout.bell_vector;
    if (!worker->layout.has_bell || assignment->nr_guest_bells > FGV_NR_GUEST_VECTORS ||
        vector >= assignment->nr_guest_bells) {
        worker->region.wake = FGV_WAKE_POLL;
        return CUDA_SUCCESS;
    }
    int guest = fcntl(assignment->guest_bells[vector], F_DUPFD_CLOEXEC, 3);
    worker->region.host_bell = &worker->bell;
    return guest >= 0 && fgv_host_bell_open(&worker->bell, guest, assignment->own_bell) ? CUDA_SUCCESS
                                                                                        : CUDA_ERROR_OPERATING_SYSTEM;
}

/* Tells a guest that waits for its state to change. */
void fgw_client_announce(struct fgw_worker *worker, uint32_t from, uint32_t to)
{
    atomic_compare_exchange_strong(&worker->client->state, &from, to);
    fgv_announce(&worker->region);
    syscall(SYS_futex, &worker->client->state, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Where its place was taken back its daemon has died, and the next one gives the client another worker. */
static void refuse_client(struct fgw_worker *worker, const struct fgw_assignment *assignment, CUresult result)
{
    if (worker->client && fgw_grantee_is_there(assignment->control, assignment->vgpu, assignment->slot)) {
        atomic_store(&worker->client->refusal, (uint32_t)result);
        fgw_client_announce(worker, FGV_CLIENT_HELLO, FGV_CLIENT_REFUSED);
    }
}

/* The warm context is of the device that the worker was opened for. */
static CUresult take_device(struct fgw_worker *worker, int ordinal)
{
    CUdevice device = worker->device;
    CUresult result = worker->driver.cuDeviceGet(&device, ordinal);
    if (result == CUDA_SUCCESS && device != worker->device) {
        fgw_context_cool(worker);
        worker->device = device;
        result = fgw_context_warm(worker);
    }
    return result;
}

static CUresult take_client(struct fgw_worker *worker, const struct fgw_assignment *assignment, char *error,
                            uint32_t error_bytes)
{
    CUresult result = map_region(worker, assignment, error, error_bytes);
    if (result == CUDA_SUCCESS && (result = take_bells(worker, assignment)) != CUDA_SUCCESS) {
        snprintf(error, error_bytes, "client %u: no bell: %s", assignment->client, strerror(errno));
    }
    if (result == CUDA_SUCCESS) {
        result = take_device(worker, assignment->device);
    }
    if (result == CUDA_SUCCESS &&
        !fgw_grantee_attach(&worker->grantee, assignment->control, assignment->vgpu, assignment->slot)) {
        snprintf(error, error_bytes, "its place in vGPU %u is not there", assignment->vgpu);
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        worker->slot = worker->grantee.slot;
        fgw_room_return(&worker->grantee);
        worker->grantee.client = worker->client;
    }
    if (result == CUDA_SUCCESS && !fgw_taken_primary(worker)) {
        snprintf(error, error_bytes, "client %u: the vGPU's quota has no room for a context", assignment->client);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

CUresult fgw_client_take(struct fgw_worker *worker, const struct fgw_assignment *assignment, char *error,
                         uint32_t error_bytes)
{
    if (assignment->client >= FGV_NR_CLIENTS || (size_t)assignment->slot >= FGW_MAX_WORKERS ||
        assignment->table_hash != FGV_TABLE_HASH) {
        snprintf(error, error_bytes,
                 "the worker was built for another table of calls, or was given a number out of range");
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    }
    const CUresult result = take_client(worker, assignment, error, error_bytes);
    if (result != CUDA_SUCCESS) {
        refuse_client(worker, assignment, result);
        return result;
    }
    worker->daemon.socket = assignment->daemon;
    memcpy(worker->slot->program, worker->layout.program, sizeof(worker->slot->program));
    return CUDA_SUCCESS;
}

bool fgw_client_change_page(struct fgw_worker *worker, const int *objects, uint64_t vgpu, uint64_t slot)
{
    struct fgw_control *before = worker->grantee.control;
    struct fgw_grantee to;
    if (vgpu >= FGW_MAX_VGPUS || slot >= FGW_MAX_WORKERS) {
        errno = EINVAL;
        return false;
    }
    struct fgw_control *control = fgw_control_open(objects, (uint32_t)vgpu);
    if (!control) {
        return false;
    }
    if (!fgw_grantee_attach(&to, control, (uint32_t)vgpu, (uint32_t)slot)) {
        fgw_control_close(control);
        errno = ENOENT;
        return false;
    }
    fgw_grantee_go_over(&worker->grantee, &to);
    worker->slot = worker->grantee.slot;
    fgw_control_close(before);
    return true;
}

CUresult fgw_client_open(struct fgw_worker *worker, const char *library, int ordinal, char *error, uint32_t error_bytes)
{
    worker->daemon.socket = -1;
    if (!fgw_printing_open(worker)) {
        snprintf(error, error_bytes, "no file for what kernels print: %s", strerror(errno));
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    CUresult result = (CUresult)fgw_worker_load(library, &worker->driver, error, error_bytes);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = worker->driver.cuDeviceGet(&worker->device, ordinal);
    if (result == CUDA_SUCCESS) {
        result = fgw_context_warm(worker);
    }
    if (result != CUDA_SUCCESS) {
        snprintf(error, error_bytes, "device %d: CUDA error %d", ordinal, (int)result);
    }
    return result;
}
