/*
 * A suspended worker whose contexts leave the device, too. The daemon says that it is to stand; it does once all of its
 * memory has left, and calls nothing of the device library from then on. Then a process of the daemon's takes its
 * contexts off the device. Where its client calls, it says that it is suspended no more (room.h), and waits: the daemon
 * brings its contexts back, and says that it need not stand.
 *
 * Wrong when: there is no daemon. The client's call waits for the next one.
 */
#ifndef BACKEND_HOST_SLEEP_H
#define BACKEND_HOST_SLEEP_H

#include "page/grantee.h"

static inline bool fgw_sleep_is_wanted(const struct fgw_grantee *grantee)
{
    const struct fgw_decided_worker *worker = &grantee->control->decided->workers[grantee->slot_index];
    return atomic_load_explicit(&worker->sleep, memory_order_acquire) != FGW_SLEEP_NONE;
}

/* Tells whether the worker in this slot has nothing on the device, not even contexts. */
static inline bool fgw_is_asleep(const struct fgw_control *control, uint32_t slot)
{
    return atomic_load(&control->decided->workers[slot].sleep) == FGW_SLEEP_ASLEEP;
}

/* cffi: begin */
/* Of the daemon: */
void fgw_control_set_sleep(struct fgw_control *control, uint32_t slot, uint32_t sleep);
/* For whoever is to bring them back: so much has to be there. */
void fgw_control_set_laid_bytes(struct fgw_control *control, uint32_t slot, uint64_t bytes);
/* cffi: end */

#endif
