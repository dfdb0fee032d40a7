/*
 * What an owner of channels may do beside holding them (backend_host/channels): for the experiment alone.
 */
#ifndef CONTROLS_H
#define CONTROLS_H

#include "channels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fgv_channels_answer controls_timeslice(uint64_t *us);
struct fgv_channels_answer controls_set_timeslice(uint64_t us);

/* Takes the group off the device, where it may be scheduled again at once; waits until it is off. */
struct fgv_channels_answer controls_preempt(uint32_t limit_us);

#ifdef __cplusplus
}
#endif

#endif
