/* CUDA_LAUNCH_BLOCKING=1: a launch returns when what it launched has ended, with its error. */
#ifndef FRONTEND_GUEST_BLOCKING_H
#define FRONTEND_GUEST_BLOCKING_H

#include "cuda_api/types.h"

/* Waits for the stream where the program asked for that; not beside a capture, where nobody may wait. */
CUresult fgv_launch_settle(CUresult result, CUstream stream);

#endif
