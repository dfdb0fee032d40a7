/* The driver goes by these sizes of a device, and programs are told them. */
#ifndef SOFTGPU_ATTRIBUTES_H
#define SOFTGPU_ATTRIBUTES_H

#include "base/state_records.h" /* how many multiprocessors */
#include "cuda_api/types.h"

#define SGP_MAX_PARAMETERS_BYTES    65536u
#define SGP_MAX_BLOCK_THREADS       1024u
#define SGP_WARP_THREADS            32u
#define SGP_MAX_STATIC_SHARED_BYTES 49152u
#define SGP_MAX_SHARED_BYTES        166912u /* opt-in, per block */
#define SGP_NR_LIMITS               8
#define SGP_LEAST_PRIORITY          0
#define SGP_GREATEST_PRIORITY       (-5)
#define SGP_MAX_STACK_BYTES         (1u << 19) /* of one CUDA thread: CU_LIMIT_STACK_SIZE, at most */

/* That all devices have alike; INT_MIN: no such attribute. */
int sgp_attribute(CUdevice_attribute attribute);

#endif
