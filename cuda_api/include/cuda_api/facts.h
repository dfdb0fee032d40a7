/*
 * What a guest may know of the host's devices without asking: one block, written by the host into the region's facts
 * when the region is formatted, copied by every guest program at cuInit. A program start asks for some 700 attributes;
 * none of them costs a round trip.
 *
 * Wrong when: a value changes while the region lives. What changes (free memory, clock rates of the moment) is not in
 * here. A link may go slower while the device is idle: it is asked for when the device has a context.
 */
#ifndef CUDA_API_FACTS_H
#define CUDA_API_FACTS_H

#include <stdint.h>

#define FGV_FACTS_VERSION       1u
#define FGV_FACTS_MAX_DEVICES   16u
#define FGV_FACTS_NR_ATTRIBUTES 192u
#define FGV_FACTS_NR_LIMITS     16u
#define FGV_FACTS_NO_VALUE      INT32_MIN /* the driver refuses this attribute: CUDA_ERROR_INVALID_VALUE */

struct fgv_device_facts {
    char name[256];
    uint8_t uuid[16];
    char pci_bus_id[16];                         /* "0000:00:00.0" */
    uint64_t total_bytes;                        /* the vGPU's quota, or the device's memory when it has none */
    uint64_t limits[FGV_FACTS_NR_LIMITS];        /* cuCtxGetLimit of a fresh context, by CUlimit; UINT64_MAX: refused */
    int32_t attributes[FGV_FACTS_NR_ATTRIBUTES]; /* by CUdevice_attribute; FGV_FACTS_NO_VALUE: refused */
    int32_t least_priority;
    int32_t greatest_priority;
    uint32_t context_api_version;
    uint8_t link_generation, link_width; /* of PCI Express, between host and device; 0: not known */
    uint8_t most_link_generation, most_link_width;
};

struct fgv_facts {
    uint32_t version;
    uint32_t nr_devices;
    int32_t driver_version; /* min of the device library's and the newest that our table covers */
    uint32_t kernel_driver; /* version of NVIDIA's kernel module, 580.65.06 being 58006506; 0: there is none */
    struct fgv_device_facts devices[FGV_FACTS_MAX_DEVICES];
};

_Static_assert(sizeof(struct fgv_device_facts) == 1208, "device facts");
_Static_assert(sizeof(struct fgv_facts) == 16 + 16 * 1208, "facts");

#endif
