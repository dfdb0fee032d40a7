/*
 * Checkpoints, as a process makes them of itself: it locks itself, gives its devices back, takes them again or others,
 * and goes on.
 *
 * From lock to unlock the door (driver.h) is closed: nothing runs, and every other call stands still wherever it is
 * without the lock. A device's memory is memory of this process, so that its contents, and all that a context has, are
 * where a checkpoint would put them. What changes is who counts: a checkpoint gives the bytes back that the process
 * has on each device, a restore counts them on the devices that are named. Errors, and what state they leave, are those
 * of NVIDIA's driver as two H200 showed them (docs/lab/softgpu.md).
 *
 * Wrong when: memory or events are shared with other processes, which count on the device they were made on. Then a
 * checkpoint is refused.
 */
#include "context/checkpoint_steps.h"

#include <string.h>

#include "base/futex.h"
#include "base/state.h"
#include "device/current.h"
#include "kernel_abi.h"
#include "memory/memory_map.h"
#include "stream/queue.h"

#define NS_PER_MS UINT64_C(1000000)

static CUprocessState process_state;
static bool is_stuck;                                /* a restore failed: there is no way on */
static uint64_t checkpointed_bytes[SGP_MAX_DEVICES]; /* by ordinal */

CUprocessState sgp_checkpoint_state(void)
{
    return process_state;
}

static void become(CUprocessState state)
{
    process_state = state;
    sgp_remote_show(state);
}

static CUresult lock(const struct sgp_checkpoint_request *request, bool (*is_given_up)(void))
{
    const uint64_t end_ns =
        request->timeout_ms ? sgp_now_ns() + request->timeout_ms * NS_PER_MS : UINT64_MAX; /* never */

    if (sgp_driver.door != SGP_OPEN) {
        return CUDA_ERROR_ILLEGAL_STATE; /* another thread is at it */
    }
    sgp_driver.door = SGP_CLOSING;
    while (!sgp_queue_is_empty()) {
        const uint64_t look_ns = is_given_up ? sgp_now_ns() + SGP_LOOK_NS : UINT64_MAX;
        const bool is_late = !sgp_wait_until(look_ns < end_ns ? look_ns : end_ns);

        if (is_late && (sgp_now_ns() >= end_ns || (is_given_up && is_given_up()))) {
            sgp_door_open();
            return CUDA_ERROR_NOT_READY;
        }
    }
    sgp_driver.door = SGP_CLOSED;
    become(CU_PROCESS_STATE_LOCKED);
    return CUDA_SUCCESS;
}

static bool is_managed(const struct sgp_allocation *allocation)
{
    const struct sgp_module *code = allocation->kind == SGP_MEMORY_MODULE ? allocation->code : NULL;

    for (uint32_t i = 0; code && i < code->nr_globals; i++) {
        if (code->globals[i].is_managed) {
            return true;
        }
    }
    return allocation->kind == SGP_MEMORY_MANAGED;
}

static bool has_managed(void)
{
    const struct sgp_allocation *allocation = sgp_memory_after(0);

    while (allocation && !is_managed(allocation)) {
        allocation = sgp_memory_after(allocation->start + allocation->mapped_bytes);
    }
    return allocation;
}

static bool has_shared(void)
{
    for (int i = 0; i < sgp_nr_devices; i++) {
        if (sgp_state_has_shared(sgp_devices[i].state)) {
            return true;
        }
    }
    for (const struct CUctx_st *one = sgp_contexts; one; one = one->next) {
        for (const struct CUevent_st *event = one->events; event; event = event->next) {
            if (event->shared) {
                return true;
            }
        }
    }
    return false;
}

static CUresult checkpoint(void)
{
    if (has_managed() || has_shared()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (int i = 0; i < sgp_nr_devices; i++) {
        checkpointed_bytes[i] = sgp_state_own_bytes(sgp_devices[i].state);
        sgp_state_give_back(sgp_devices[i].state, checkpointed_bytes[i]);
    }
    become(CU_PROCESS_STATE_CHECKPOINTED);
    return CUDA_SUCCESS;
}

/* -1: the machine has no such device. */
static int physical_of(const CUuuid *uuid)
{
    for (int i = 0; i < sgp_nr_physical_devices; i++) {
        uint8_t own[16];

        sgp_device_uuid(i, own);
        if (!memcmp(own, uuid->bytes, sizeof(own))) {
            return i;
        }
    }
    return -1;
}

/* Where what was on each device of the machine goes to. The pairs must name each once as an old one and once as a new
 * one, whether the process sees it or not. */
static bool read_pairs(const struct sgp_checkpoint_request *request, int to[SGP_MAX_DEVICES])
{
    bool is_old[SGP_MAX_DEVICES] = {false}, is_new[SGP_MAX_DEVICES] = {false};

    for (int i = 0; i < sgp_nr_physical_devices; i++) {
        to[i] = i;
    }
    if (request->nr_pairs && request->nr_pairs != (uint32_t)sgp_nr_physical_devices) {
        return false;
    }
    for (uint32_t i = 0; i < request->nr_pairs; i++) {
        int old = physical_of(&request->pairs[i].oldUuid), new = physical_of(&request->pairs[i].newUuid);

        if (old < 0 || new < 0 || is_old[old] || is_new[new]) {
            return false;
        }
        is_old[old] = is_new[new] = true;
        to[old] = new;
    }
    return true;
}

/* Takes what the process had on this device on another one, or the same. */
static CUresult take(const struct sgp_device *device, int physical, struct sgp_state **state)
{
    const uint64_t bytes = checkpointed_bytes[device->ordinal];

    *state = sgp_device_state_open(physical);
    if (!*state) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (bytes && !sgp_state_reserve(*state, bytes, device->memory_bytes)) {
        sgp_state_close(*state);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* All devices or none. */
static CUresult take_all(const int to[SGP_MAX_DEVICES])
{
    struct sgp_state *states[SGP_MAX_DEVICES];
    CUresult result = CUDA_SUCCESS;
    int nr = 0;

    while (nr < sgp_nr_devices && !result) {
        result = take(&sgp_devices[nr], to[sgp_devices[nr].physical], &states[nr]);
        nr += !result;
    }
    for (int i = 0; i < nr; i++) {
        struct sgp_device *device = &sgp_devices[i];

        if (result) {
            sgp_state_close(states[i]);
            continue;
        }
        sgp_state_close(device->state);
        device->state = states[i];
        device->physical = to[device->physical];
    }
    return result;
}

static CUresult restore(const struct sgp_checkpoint_request *request)
{
    int to[SGP_MAX_DEVICES];
    CUresult result;

    if (is_stuck) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (!request->is_valid || !read_pairs(request, to)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = take_all(to);
    is_stuck = result != CUDA_SUCCESS;
    if (!result) {
        become(CU_PROCESS_STATE_LOCKED);
    }
    return result;
}

static CUresult unlock(void)
{
    become(CU_PROCESS_STATE_RUNNING);
    sgp_door_open();
    return CUDA_SUCCESS;
}

CUresult sgp_checkpoint_step(const struct sgp_checkpoint_request *request, bool (*is_given_up)(void))
{
    static const CUprocessState wanted[] = {
        [SGP_CHECKPOINT_LOCK] = CU_PROCESS_STATE_RUNNING,
        [SGP_CHECKPOINT_TAKE] = CU_PROCESS_STATE_LOCKED,
        [SGP_CHECKPOINT_RESTORE] = CU_PROCESS_STATE_CHECKPOINTED,
        [SGP_CHECKPOINT_UNLOCK] = CU_PROCESS_STATE_LOCKED,
    };

    if (request->step > SGP_CHECKPOINT_UNLOCK) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (process_state != wanted[request->step]) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (request->step == SGP_CHECKPOINT_RESTORE) {
        return restore(request); /* one that is stuck says so before it looks at arguments */
    }
    if (!request->is_valid) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (request->step) {
    case SGP_CHECKPOINT_LOCK:
        return lock(request, is_given_up);
    case SGP_CHECKPOINT_TAKE:
        return checkpoint();
    default:
        return unlock();
    }
}

CUresult sgp_checkpoint_serve(const struct sgp_checkpoint_request *request, bool (*is_given_up)(void))
{
    sgp_lock_closed();
    return sgp_leave(sgp_driver.is_initialised ? sgp_checkpoint_step(request, is_given_up)
                                               : CUDA_ERROR_NOT_INITIALIZED);
}
