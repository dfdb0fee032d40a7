/* The devices: how many, what they say of themselves, how they are opened. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_api/green_calls.h"
#include "cuda_api/prototypes.h"
#include "cuda_api/visible.h"
#include "memory.h"
#include "runtime/runtime.h"
#include "state.h"

#define PCI_BUS_ID_BYTES     13 /* "0000:00:00.0" and its end */
#define DEFAULT_MEMORY_BYTES (4ull << 30)
#define DEFAULT_STATE_PATH   "/dev/shm/fairgv-softgpu"
#define DEVICE_NAME          "FairGV softgpu"

static int nr_devices(void)
{
    const char *text = getenv("FAIRGV_SOFTGPU_DEVICES");
    char *end;
    long value;

    if (!text || !*text) {
        return 1;
    }
    value = strtol(text, &end, 10);
    if (*end || value < 0 || value > SGP_MAX_DEVICES) {
        sgp_log("device", "FAIRGV_SOFTGPU_DEVICES=%s is not a number from 0 to %d; there is 1 device", text,
                SGP_MAX_DEVICES);
        return 1;
    }
    return (int)value;
}

/* "4G", "512M", "1048576". */
static uint64_t memory_bytes(void)
{
    const char *text = getenv("FAIRGV_SOFTGPU_MEMORY");
    unsigned long long value;
    unsigned int shift = 0;
    char *end;

    if (!text || !*text) {
        return DEFAULT_MEMORY_BYTES;
    }
    value = strtoull(text, &end, 10);
    if (*end == 'K' || *end == 'k') {
        shift = 10;
    } else if (*end == 'M' || *end == 'm') {
        shift = 20;
    } else if (*end == 'G' || *end == 'g') {
        shift = 30;
    }
    end += shift != 0;
    if (!strcmp(end, "iB")) {
        end += 2;
    }
    if (*end || !value || value > (1ull << 44 >> shift)) {
        sgp_log("device", "FAIRGV_SOFTGPU_MEMORY=%s is not a size such as 4G; the device has 4 GiB", text);
        return DEFAULT_MEMORY_BYTES;
    }
    return (uint64_t)value << shift;
}

static CUresult device_open(struct sgp_device *device, int ordinal, int physical)
{
    const char *prefix = getenv("FAIRGV_SOFTGPU_STATE");
    char path[PATH_MAX];

    if (device->reservation) {
        return CUDA_SUCCESS; /* an earlier cuInit got this far */
    }
    *device = (struct sgp_device){.ordinal = ordinal, .physical = physical, .memory_bytes = memory_bytes()};
    if (snprintf(path, sizeof(path), "%s.%d", prefix && *prefix ? prefix : DEFAULT_STATE_PATH, physical) >=
        (int)sizeof(path)) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    device->state = sgp_state_open(path);
    if (!device->state) {
        sgp_log("device", "cannot open the device's shared file %s: %s", path, strerror(errno));
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (!sgp_memory_reserve(device) || !sgp_launch_area_map(device)) {
        sgp_log("device", "cannot reserve %llu bytes of address space: %s", (unsigned long long)device->memory_bytes,
                strerror(errno));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sgp_pool_open(device);
    return CUDA_SUCCESS;
}

static void forked_child(void)
{
    if (!sgp_driver.is_initialised) {
        return;
    }
    sgp_driver.is_forked = true;
    for (int i = 0; i < sgp_driver.nr_devices; i++) {
        sgp_state_close_in_child(sgp_driver.devices[i].state);
    }
}

static void physical_uuid(int physical, uint8_t uuid[16])
{
    static const uint8_t base[16] = {0xfa, 0x16, 0x5f, 0x67, 0x70, 0x75, 0x4a, 0x00,
                                     0x80, 0x00, 0x50, 0x54, 0x58, 0x43, 0x50, 0x00};

    memcpy(uuid, base, sizeof(base));
    uuid[15] = (uint8_t)physical;
}

/* Which devices the program sees, in its order. */
static CUresult visible_devices(uint32_t physical[SGP_MAX_DEVICES], uint32_t *nr)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    uint8_t uuids[SGP_MAX_DEVICES][16];
    int nr_present = nr_devices();

    for (int i = 0; i < nr_present; i++) {
        physical[i] = (uint32_t)i;
        physical_uuid(i, uuids[i]);
    }
    *nr = (uint32_t)nr_present;
    return list ? fgv_visible_devices(list, uuids, (uint32_t)nr_present, physical, nr) : CUDA_SUCCESS;
}

static CUresult initialise(void)
{
    uint32_t physical[SGP_MAX_DEVICES], nr;
    CUresult result = visible_devices(physical, &nr);

    if (result || !nr) {
        return result ? result : CUDA_ERROR_NO_DEVICE;
    }
    for (uint32_t i = 0; i < nr; i++) {
        result = device_open(&sgp_driver.devices[i], (int)i, (int)physical[i]);
        if (result) {
            return result;
        }
    }
    if (pthread_atfork(NULL, NULL, forked_child)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sgp_driver.nr_devices = (int)nr;
    sgp_driver.is_initialised = true;
    return CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuInit(unsigned int Flags)
{
    CUresult result = CUDA_SUCCESS;

    if (Flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sgp_driver.is_forked) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    sgp_lock();
    if (!sgp_driver.is_initialised) {
        result = initialise();
    }
    return sgp_leave(result);
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
    return device >= 0 && device < sgp_driver.nr_devices ? &sgp_driver.devices[device] : NULL;
}

static CUresult enter_device(CUdevice dev, struct sgp_device **device)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    *device = sgp_device_find(dev);
    return *device ? CUDA_SUCCESS : sgp_leave(CUDA_ERROR_INVALID_DEVICE);
}

SGP_EXPORT CUresult cuDeviceGetCount(int *count)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!count) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *count = sgp_driver.nr_devices;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    struct sgp_device *found;
    CUresult result = enter_device(ordinal, &found);

    if (result) {
        return result;
    }
    if (!device) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *device = ordinal;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = enter_device(dev, &device);

    if (result) {
        return result;
    }
    if (!name || !len) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    snprintf(name, len < 0 ? sizeof(DEVICE_NAME) : (size_t)len, "%s", DEVICE_NAME);
    return sgp_leave(CUDA_SUCCESS);
}

void sgp_device_uuid(int ordinal, CUuuid *uuid)
{
    physical_uuid(sgp_driver.devices[ordinal].physical, (uint8_t *)uuid->bytes);
}

SGP_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = enter_device(dev, &device);

    if (result) {
        return result;
    }
    if (!uuid) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    sgp_device_uuid(dev, uuid);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetLuid(char *luid, unsigned int *deviceNodeMask, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = enter_device(dev, &device);

    if (result) {
        return result;
    }
    return sgp_leave(luid && deviceNodeMask ? CUDA_ERROR_NOT_SUPPORTED
                                            : CUDA_ERROR_INVALID_VALUE); /* Windows' affair */
}

SGP_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = enter_device(dev, &device);

    if (result) {
        return result;
    }
    if (!bytes) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *bytes = device->memory_bytes;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    struct sgp_device *device;
    int value;
    CUresult result = enter_device(dev, &device);

    if (result) {
        return result;
    }
    value = sgp_device_attribute(device, attrib);
    if (!pi || value == INT_MIN) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pi = value;
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = enter_device(dev, &device);

    if (result) {
        return result;
    }
    if (!prop) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *prop = (CUdevprop){
        .maxThreadsPerBlock = sgp_device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        .sharedMemPerBlock = sgp_device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
        .totalConstantMemory = sgp_device_attribute(device, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
        .SIMDWidth = sgp_device_attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        .memPitch = sgp_device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_PITCH),
        .regsPerBlock = sgp_device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
        .clockRate = sgp_device_attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        .textureAlign = sgp_device_attribute(device, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
    };
    for (int i = 0; i < 3; i++) {
        prop->maxThreadsDim[i] =
            sgp_device_attribute(device, (CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
        prop->maxGridSize[i] =
            sgp_device_attribute(device, (CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
    }
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = enter_device(dev, &device);

    if (result) {
        return result;
    }
    if (!major || !minor) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *major = sgp_device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = sgp_device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = enter_device(dev, &device);

    if (result) {
        return result;
    }
    if (!pciBusId || len < PCI_BUS_ID_BYTES) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", SGP_FIRST_PCI_BUS + device->physical);
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
    for (int i = 0; i < sgp_driver.nr_devices; i++) {
        if (!domain && !slot && !function && bus == SGP_FIRST_PCI_BUS + (unsigned int)sgp_driver.devices[i].physical) {
            *dev = i;
            return sgp_leave(CUDA_SUCCESS);
        }
    }
    return sgp_leave(CUDA_ERROR_INVALID_DEVICE);
}

SGP_EXPORT CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    struct sgp_device *device, *other;
    CUresult result = enter_device(dev, &device);

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
    CUresult result = enter_device(srcDevice, &device);

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
    CUresult result = enter_device(dev, &device);

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
