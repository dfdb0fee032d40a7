/*
 * Checkpoints: a process locks itself, gives its devices back, takes them again or others, and goes on.
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
#include "cuda_api/checkpoint.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/state.h"
#include "device/current.h"
#include "kernel_abi.h"
#include "memory/memory_map.h"
#include "stream/queue.h"

#define NS_PER_MS UINT64_C(1000000)

static CUprocessState process_state;
static bool is_stuck;                                /* a restore failed: there is no way on */
static uint64_t checkpointed_bytes[SGP_MAX_DEVICES]; /* by ordinal */

/* Takes the lock, whether the door is closed or not. */
static CUresult enter(int pid)
{
    if (sgp_driver.is_forked) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    sgp_lock_closed();
    if (!sgp_driver.is_initialised) {
        return sgp_leave(CUDA_ERROR_NOT_INITIALIZED);
    }
    if (pid == getpid()) {
        return CUDA_SUCCESS;
    }
    return sgp_leave(pid <= 0 || (kill(pid, 0) && errno == ESRCH) ? CUDA_ERROR_OPERATING_SYSTEM
                                                                  : CUDA_ERROR_NOT_SUPPORTED);
}

/* As enter, for a call that is good in one state. */
static CUresult enter_in(int pid, CUprocessState wanted)
{
    CUresult result = enter(pid);

    return result || process_state == wanted ? result : sgp_leave(CUDA_ERROR_ILLEGAL_STATE);
}

static bool is_zero(const void *bytes, size_t nr)
{
    const unsigned char *at = bytes;

    return !nr || (!at[0] && !memcmp(at, at + 1, nr - 1));
}

/* This driver needs no thread for it, and names one that is there. */
SGP_EXPORT CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
    CUresult result = sgp_with_argument(enter(pid), tid);

    if (result) {
        return result;
    }
    *tid = getpid();
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
    CUresult result = sgp_with_argument(enter(pid), state);

    if (result) {
        return result;
    }
    *state = process_state;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    const uint64_t begin_ns = sgp_now_ns(), timeout_ms = args ? args->timeoutMs : 0;
    CUresult result = enter_in(pid, CU_PROCESS_STATE_RUNNING);

    if (result) {
        return result;
    }
    if (args && (args->reserved0 || !is_zero(args->reserved1, sizeof(args->reserved1)))) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (sgp_driver.door != SGP_OPEN) {
        return sgp_leave(CUDA_ERROR_ILLEGAL_STATE); /* another thread is at it */
    }
    sgp_driver.door = SGP_CLOSING;
    while (!sgp_queue_is_empty()) {
        if (!timeout_ms) {
            sgp_wait();
        } else if (!sgp_wait_until(begin_ns + timeout_ms * NS_PER_MS)) {
            sgp_door_open();
            return sgp_leave(CUDA_ERROR_NOT_READY);
        }
    }
    sgp_driver.door = SGP_CLOSED;
    process_state = CU_PROCESS_STATE_LOCKED;
    return sgp_leave(CUDA_SUCCESS);
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

SGP_EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    CUresult result = enter_in(pid, CU_PROCESS_STATE_LOCKED);

    if (result) {
        return result;
    }
    if (args && !is_zero(args, sizeof(*args))) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (has_managed() || has_shared()) {
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    for (int i = 0; i < sgp_nr_devices; i++) {
        checkpointed_bytes[i] = sgp_state_own_bytes(sgp_devices[i].state);
        sgp_state_give_back(sgp_devices[i].state, checkpointed_bytes[i]);
    }
    process_state = CU_PROCESS_STATE_CHECKPOINTED;
    return sgp_leave(CUDA_SUCCESS);
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
static bool read_pairs(const CUcheckpointRestoreArgs *args, int to[SGP_MAX_DEVICES])
{
    bool is_old[SGP_MAX_DEVICES] = {false}, is_new[SGP_MAX_DEVICES] = {false};

    for (int i = 0; i < sgp_nr_physical_devices; i++) {
        to[i] = i;
    }
    if (!args) {
        return true;
    }
    if (!is_zero(args->reserved, sizeof(args->reserved)) || args->reserved1 ||
        (args->gpuPairsCount && !args->gpuPairs)) {
        return false;
    }
    if (args->gpuPairsCount && args->gpuPairsCount != (unsigned int)sgp_nr_physical_devices) {
        return false;
    }
    for (unsigned int i = 0; i < args->gpuPairsCount; i++) {
        int old = physical_of(&args->gpuPairs[i].oldUuid), new = physical_of(&args->gpuPairs[i].newUuid);

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

SGP_EXPORT CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    int to[SGP_MAX_DEVICES];
    CUresult result = enter_in(pid, CU_PROCESS_STATE_CHECKPOINTED);

    if (result) {
        return result;
    }
    if (is_stuck) {
        return sgp_leave(CUDA_ERROR_OPERATING_SYSTEM);
    }
    if (!read_pairs(args, to)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = take_all(to);
    is_stuck = result != CUDA_SUCCESS;
    if (!result) {
        process_state = CU_PROCESS_STATE_LOCKED;
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    CUresult result = enter_in(pid, CU_PROCESS_STATE_LOCKED);

    if (result) {
        return result;
    }
    if (args && !is_zero(args, sizeof(*args))) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    process_state = CU_PROCESS_STATE_RUNNING;
    sgp_door_open();
    return sgp_leave(CUDA_SUCCESS);
}
