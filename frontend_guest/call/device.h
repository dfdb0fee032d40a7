/* Devices, as the program sees them: ordinals 0 .. fgv_guest.nr_devices - 1, which CUDA_VISIBLE_DEVICES may have chosen
 * and ordered. */
#ifndef FRONTEND_GUEST_DEVICE_H
#define FRONTEND_GUEST_DEVICE_H

#include "region/client.h"

static inline const struct fgv_device_facts *fgv_device_facts(uint32_t ordinal)
{
    return &fgv_guest.facts.devices[fgv_guest.devices[ordinal]];
}

/* CUDA_SUCCESS when initialised and the device exists. */
CUresult fgv_device_check(CUdevice device);

#endif
