/* A device is a record of this process; its memory and its turns are shared by all processes (state.h). */
#ifndef SOFTGPU_DEVICE_H
#define SOFTGPU_DEVICE_H

#include "base/driver.h"
#include "device/attributes.h"

#define SGP_MAX_DEVICES    16
#define SGP_DRIVER_VERSION 13000
#define SGP_FIRST_PCI_BUS  0xf0

struct sgp_device {
    int ordinal;  /* as this program counts */
    int physical; /* as the machine counts: CUDA_VISIBLE_DEVICES lies between, and a restored checkpoint */
    int bus;      /* PCI's, from SGP_FIRST_PCI_BUS: as at the start, wherever the process was restored since */
    struct sgp_state *state;
    struct CUctx_st *primary;
    struct CUmemPoolHandle_st *default_pool;
    struct CUmemPoolHandle_st *pool; /* that cuMemAllocAsync takes from */
    uint32_t nr_primary_retains;     /* a reset leaves them as they are */
    CUresult fault;                  /* of this process: nothing of it runs here any more */
    unsigned int primary_flags;
    uint8_t *reservation;
    uint64_t reservation_bytes;
    uint64_t memory_bytes;
};

extern int sgp_nr_devices;
extern int sgp_nr_physical_devices; /* of the machine */
extern struct sgp_device sgp_devices[SGP_MAX_DEVICES];

struct sgp_device *sgp_device_find(CUdevice device);
struct sgp_device *sgp_device_of(const uint64_t identity[2]);           /* sgp_state_identity() */
CUresult sgp_enter_device(CUdevice handle, struct sgp_device **device); /* as sgp_enter_driver */
/* Another from its first byte on, as people name a device by the beginning of it. */
void sgp_device_uuid(int physical, uint8_t uuid[16]);
/* The file of a device of the machine; NULL: it cannot be opened, and errno says why. */
struct sgp_state *sgp_device_state_open(int physical);

/* Whether the wall was asked for and is not to be had (runtime/wall.c). With the lock. */
extern bool (*sgp_device_lacks_wall)(void);

#endif
