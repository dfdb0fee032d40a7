/* What a process does to be taken off its devices and put back. */
#ifndef SOFTGPU_CHECKPOINT_STEPS_H
#define SOFTGPU_CHECKPOINT_STEPS_H

#include "context/remote.h"

/* With the lock, whether the door is closed or not (sgp_lock_closed). NULL: it is wanted until it has ended. */
CUresult sgp_checkpoint_step(const struct sgp_checkpoint_request *request, bool (*is_given_up)(void));
CUprocessState sgp_checkpoint_state(void);

/* For another process: sgp_remote_serve. */
CUresult sgp_checkpoint_serve(const struct sgp_checkpoint_request *request, bool (*is_given_up)(void));

#endif
