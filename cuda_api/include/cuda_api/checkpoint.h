/*
 * Calls by which a process is taken off its devices and put back, on others if need be. They are none of the table: a
 * guest's are refused (refused.toml), since the process that has the device is the worker.
 */
#ifndef CUDA_API_CHECKPOINT_H
#define CUDA_API_CHECKPOINT_H

#include "cuda_api/types.h"

CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid);
CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state);
CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args);
CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args);
CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args);
CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args);

#endif
