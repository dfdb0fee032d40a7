/*
 * A device library that has checkpoints and nothing else. It does as FAKE_DRIVER says: words "STEP PID RESULT", a
 * result of -1 never comes. STEP is "restore" where a process goes back to where it was, "other" where pairs are named.
 * What it is told it checks: reserved words, and pairs that exchange two of its three devices. "state PID" is the state
 * of a process (CUprocessState), and "left 0" how many MiB the second device has left, "context 0" what comes of a
 * context there; with "print 0 1" it prints as it locks.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_api/checkpoint.h"

#define NR_DEVICES 3

static CUresult told(const char *step, int pid)
{
    char wanted[64];
    const char *all = getenv("FAKE_DRIVER");
    snprintf(wanted, sizeof(wanted), " %s %d ", step, pid);
    const char *found = all ? strstr(all, wanted) : NULL;
    const int result = found ? atoi(found + strlen(wanted)) : 0;
    while (result < 0) {
        pause();
    }
    return (CUresult)result;
}

static int is_zero(const void *bytes, size_t nr)
{
    const unsigned char *at = bytes;
    while (nr > 0 && at[nr - 1] == 0) {
        nr--;
    }
    return nr == 0;
}

CUresult cuInit(unsigned int flags)
{
    return (CUresult)(flags != 0 || getenv("CUDA_VISIBLE_DEVICES") ? CUDA_ERROR_INVALID_VALUE : told("init", 0));
}

CUresult cuDeviceGetCount(int *count)
{
    *count = NR_DEVICES;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, int device)
{
    memset(uuid, 0x10 + device, sizeof(*uuid));
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    if (told("print", 0)) {
        puts("the driver says this");
        fflush(stdout);
    }
    const int is_good = args && args->timeoutMs == 1000 && args->reserved0 == 0 && is_zero(args->reserved1, 56);
    return is_good ? told("lock", pid) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    return args && is_zero(args, sizeof(*args)) ? told("checkpoint", pid) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    static const char to[NR_DEVICES] = {0x10, 0x12, 0x11};
    if (!args) {
        return told("restore", pid);
    }
    if (args->gpuPairsCount != NR_DEVICES || !is_zero(args->reserved, sizeof(args->reserved)) || args->reserved1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (int device = 0; device < NR_DEVICES; device++) {
        const CUcheckpointGpuPair *pair = &args->gpuPairs[device];
        if (pair->oldUuid.bytes[15] != 0x10 + device || pair->newUuid.bytes[0] != to[device]) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
    }
    return told("other", pid);
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    return args && is_zero(args, sizeof(*args)) ? told("unlock", pid) : CUDA_ERROR_INVALID_VALUE;
}

/* A process that says nothing of its state is checkpointed, until it was restored. */
CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
    static int restored[100];
    const int said = (int)told("state", pid);
    *state = said ? (CUprocessState)(said - 1) : CU_PROCESS_STATE_CHECKPOINTED;
    if (!said && restored[pid]++) {
        *state = CU_PROCESS_STATE_LOCKED;
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)&told;
    return device == 1 ? told("context", 0) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    return context == NULL || context == (CUcontext)&told ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *total)
{
    *left = (size_t)told("left", 0) << 20;
    *total = (size_t)80 << 30;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return device == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
