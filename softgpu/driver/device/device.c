/* The devices: how many, what they say of themselves. start.c opens them. */
#include "device/device.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/state.h"
#include "cuda_api/green_calls.h"
#include "cuda_api/prototypes.h"

#define PCI_BUS_ID_BYTES   13 /* "0000:00:00.0" and its end */
#define DEVICE_NAME        "FairGV softgpu"
#define DEFAULT_STATE_PATH "/dev/shm/fairgv-softgpu"

int sgp_nr_devices;
int sgp_nr_physical_devices;
bool (*sgp_device_lacks_wall)(void);
struct sgp_device sgp_devices[SGP_MAX_DEVICES];

void sgp_device_uuid(int physical, uint8_t uuid[16])
{
    static const uint8_t base[16] = {0xfa, 0x16, 0x5f, 0x67, 0x70, 0x75, 0x4a, 0x00,
                                     0x80, 0x00, 0x50, 0x54, 0x58, 0x43, 0x50, 0x00};

    memcpy(uuid, base, sizeof(base));
    uuid[0] ^= (uint8_t)physical;
    uuid[15] = (uint8_t)physical;
}

struct sgp_state *sgp_device_state_open(int physical)
{
    const char *prefix = getenv("FAIRGV_SOFTGPU_STATE");
    struct sgp_state *state;
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s.%d", prefix && *prefix ? prefix : DEFAULT_STATE_PATH, physical) >=
        (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    state = sgp_state_open(path);
    if (!state) {
        sgp_log("device", "cannot open the device's shared file %s: %s", path, strerror(errno));
    }
    return state;
}

SGP_EXPORT CUresult cuDriverGetVersion(int *driverVersion)
{
    if (!driverVersion) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *driverVersion = SGP_DRIVER_VERSION;
    return CUDA_SUCCESS;
}

struct sgp_device *sgp_device_find(CUdevice device)
{
    return device >= 0 && device < sgp_nr_devices ? &sgp_devices[device] : NULL;
}

struct sgp_device *sgp_device_of(const uint64_t identity[2])
{
    for (int i = 0; i < sgp_nr_devices; i++) {
        uint64_t own[2];

        sgp_state_identity(sgp_devices[i].state, own);
        if (own[0] == identity[0] && own[1] == identity[1]) {
            return &sgp_devices[i];
        }
    }
    return NULL;
}

CUresult sgp_enter_device(CUdevice handle, struct sgp_device **device)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    *device = sgp_device_find(handle);
    return *device ? CUDA_SUCCESS : sgp_leave(CUDA_ERROR_INVALID_DEVICE);
}

SGP_EXPORT CUresult cuDeviceGetCount(int *count)
{
    CUresult result = sgp_with_argument(sgp_enter_driver(), count);

    if (result) {
        return result;
    }
    *count = sgp_nr_devices;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    struct sgp_device *found;
    CUresult result = sgp_with_argument(sgp_enter_device(ordinal, &found), device);

    if (result) {
        return result;
    }
    *device = ordinal;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = sgp_enter_device(dev, &device);

    if (result) {
        return result;
    }
    if (!name || !len) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    snprintf(name, len < 0 ? sizeof(DEVICE_NAME) : (size_t)len, "%s", DEVICE_NAME);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = sgp_with_argument(sgp_enter_device(dev, &device), uuid);

    if (result) {
        return result;
    }
    sgp_device_uuid(device->physical, (uint8_t *)uuid->bytes);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetLuid(char *luid, unsigned int *deviceNodeMask, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = sgp_enter_device(dev, &device);

    if (result) {
        return result;
    }
    return sgp_leave(luid && deviceNodeMask ? CUDA_ERROR_NOT_SUPPORTED
                                            : CUDA_ERROR_INVALID_VALUE); /* Windows' affair */
}

SGP_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = sgp_with_argument(sgp_enter_device(dev, &device), bytes);

    if (result) {
        return result;
    }
    *bytes = device->memory_bytes;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    struct sgp_device *device;
    int value;
    CUresult result = sgp_enter_device(dev, &device);

    if (result) {
        return result;
    }
    value = attrib == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID                 ? SGP_FIRST_PCI_BUS + device->bus
            : attrib == CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID ? device->ordinal
            : attrib == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS   ? sgp_device_lacks_wall()
                                                                     : sgp_attribute(attrib);
    if (!pi || value == INT_MIN) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pi = value;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = sgp_with_argument(sgp_enter_device(dev, &device), prop);

    if (result) {
        return result;
    }
    *prop = (CUdevprop){
        .maxThreadsPerBlock = sgp_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        .sharedMemPerBlock = sgp_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
        .totalConstantMemory = sgp_attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
        .SIMDWidth = sgp_attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        .memPitch = sgp_attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
        .regsPerBlock = sgp_attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
        .clockRate = sgp_attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        .textureAlign = sgp_attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
    };
    for (int i = 0; i < 3; i++) {
        prop->maxThreadsDim[i] = sgp_attribute((CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
        prop->maxGridSize[i] = sgp_attribute((CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
    }
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = sgp_enter_device(dev, &device);

    if (result) {
        return result;
    }
    if (!major || !minor) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *major = sgp_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = sgp_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = sgp_enter_device(dev, &device);

    if (result) {
        return result;
    }
    if (!pciBusId || len < PCI_BUS_ID_BYTES) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", SGP_FIRST_PCI_BUS + device->bus);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    unsigned int domain = 0, bus, slot, function = 0;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!dev || !pciBusId) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = function = 0;
        if (sscanf(pciBusId, "%x:%x.%x", &bus, &slot, &function) < 2) {
            return sgp_leave(CUDA_ERROR_INVALID_VALUE);
        }
    }
    for (int i = 0; i < sgp_nr_devices; i++) {
        if (!domain && !slot && !function && bus == SGP_FIRST_PCI_BUS + (unsigned int)sgp_devices[i].bus) {
            *dev = i;
            return sgp_leave(CUDA_SUCCESS);
        }
    }
    return sgp_leave(CUDA_ERROR_INVALID_DEVICE);
}

SGP_EXPORT CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    struct sgp_device *device, *other;
    CUresult result = sgp_enter_device(dev, &device);

    if (result) {
        return result;
    }
    other = sgp_device_find(peerDev);
    if (!other) {
        return sgp_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    if (!canAccessPeer) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *canAccessPeer = other != device;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                            CUdevice dstDevice)
{
    struct sgp_device *device, *other;
    CUresult result = sgp_enter_device(srcDevice, &device);

    if (result) {
        return result;
    }
    other = sgp_device_find(dstDevice);
    if (!other) {
        return sgp_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    if (value && other == device) {
        return sgp_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    if (!value || (unsigned int)attrib < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
        attrib > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *value =
        attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED || attrib == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = sgp_enter_device(dev, &device);

    if (result) {
        return result;
    }
    (void)type; /* an unknown one is not supported either */
    if (!pi) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pi = 0;
    return sgp_leave(CUDA_SUCCESS);
}

static CUresult green_refuse(void)
{
    CUresult result = sgp_enter_driver();

    return result ? result : sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
}

static const struct fgv_green_ops green_ops = {.refuse = green_refuse};

__attribute__((constructor)) static void lend_green_ops(void)
{
    fgv_green_set_ops(&green_ops);
}
