/* Checkpoints: the calls, which name this process or another one. What they do is checkpoint_steps.c. */
#include "cuda_api/checkpoint.h"

#include <string.h>
#include <unistd.h>

#include "context/checkpoint_steps.h"

/* Takes the lock, whether the door is closed or not. */
static CUresult enter(void)
{
    if (sgp_driver.is_forked) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    sgp_lock_closed();
    return sgp_driver.is_initialised ? CUDA_SUCCESS : sgp_leave(CUDA_ERROR_NOT_INITIALIZED);
}

static CUresult step(int pid, const struct sgp_checkpoint_request *request)
{
    CUresult result = enter();

    if (result) {
        return result;
    }
    if (pid == getpid()) {
        return sgp_leave(sgp_checkpoint_step(request, NULL));
    }
    sgp_unlock(); /* others may ask for this process meanwhile, that one too */
    return sgp_remote_ask(pid, request);
}

static bool is_zero(const void *bytes, size_t nr)
{
    const unsigned char *at = bytes;

    return !nr || (!at[0] && !memcmp(at, at + 1, nr - 1));
}

SGP_EXPORT CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
    CUprocessState state;
    CUresult result = sgp_with_argument(enter(), tid);

    if (result) {
        return result;
    }
    if (pid == getpid()) {
        *tid = sgp_remote_thread();
        return sgp_leave(CUDA_SUCCESS);
    }
    sgp_unlock();
    return sgp_remote_look(pid, tid, &state);
}

SGP_EXPORT CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
    int thread;
    CUresult result = sgp_with_argument(enter(), state);

    if (result) {
        return result;
    }
    if (pid == getpid()) {
        *state = sgp_checkpoint_state();
        return sgp_leave(CUDA_SUCCESS);
    }
    sgp_unlock();
    return sgp_remote_look(pid, &thread, state);
}

SGP_EXPORT CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    const struct sgp_checkpoint_request request = {
        .step = SGP_CHECKPOINT_LOCK,
        .is_valid = !args || (!args->reserved0 && is_zero(args->reserved1, sizeof(args->reserved1))),
        .timeout_ms = args ? args->timeoutMs : 0,
    };

    return step(pid, &request);
}

SGP_EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    const struct sgp_checkpoint_request request = {.step = SGP_CHECKPOINT_TAKE,
                                                   .is_valid = !args || is_zero(args, sizeof(*args))};

    return step(pid, &request);
}

SGP_EXPORT CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    struct sgp_checkpoint_request request = {.step = SGP_CHECKPOINT_RESTORE, .is_valid = 1};

    if (args) {
        request.is_valid = is_zero(args->reserved, sizeof(args->reserved)) && !args->reserved1 &&
                           args->gpuPairsCount <= SGP_MAX_DEVICES && (!args->gpuPairsCount || args->gpuPairs);
        request.nr_pairs = request.is_valid ? args->gpuPairsCount : 0;
    }
    if (request.nr_pairs) {
        memcpy(request.pairs, args->gpuPairs, request.nr_pairs * sizeof(*args->gpuPairs));
    }
    return step(pid, &request);
}

SGP_EXPORT CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    const struct sgp_checkpoint_request request = {.step = SGP_CHECKPOINT_UNLOCK,
                                                   .is_valid = !args || is_zero(args, sizeof(*args))};

    return step(pid, &request);
}
