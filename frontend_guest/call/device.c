/*
 * Questions about devices: all answered from the facts that came with the region, none costs a round trip.
 *
 * Wrong when: the host's device can do more than this library carries. What it does not carry is answered as "not
 * supported" here, whatever the device says, so that programs take their other path.
 */
#include "call/device.h"

#include <stdbool.h>
#include <string.h>

#include "cuda_api/green_calls.h"
#include "cuda_api/prototypes.h"

CUresult fgv_device_check(CUdevice device)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return device < 0 || (uint32_t)device >= fgv_guest.nr_devices ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* For questions about a device, which have somewhere to answer. */
static CUresult question(CUdevice device, const void *answer)
{
    CUresult result = fgv_device_check(device);
    return result == CUDA_SUCCESS && !answer ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult cuInit(unsigned int Flags)
{
    return Flags != 0 ? CUDA_ERROR_INVALID_VALUE : fgv_client_open();
}

/* Without a region the version is that of the table this library was built from, so that a program can say what it
 * misses. */
CUresult cuDriverGetVersion(int *driverVersion)
{
    if (!driverVersion) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *driverVersion = fgv_client_is_open() == CUDA_SUCCESS ? fgv_guest.facts.driver_version : CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *count = (int)fgv_guest.nr_devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = question(ordinal, device);
    if (result == CUDA_SUCCESS) {
        *device = ordinal;
    }
    return result;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    CUresult result = fgv_device_check(dev);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const size_t room = (unsigned)len; /* NVIDIA's driver takes -1 for a lot, too */
    if (!name || room == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const char *known = fgv_device_facts((uint32_t)dev)->name;
    size_t length = strnlen(known, sizeof(fgv_device_facts(0)->name));
    if (length > room - 1) {
        length = room - 1;
    }
    memcpy(name, known, length);
    name[length] = '\0';
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    CUresult result = question(dev, uuid);
    if (result == CUDA_SUCCESS) {
        memcpy(uuid->bytes, fgv_device_facts((uint32_t)dev)->uuid, sizeof(uuid->bytes));
    }
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    CUresult result = question(dev, bytes);
    if (result == CUDA_SUCCESS) {
        *bytes = fgv_device_facts((uint32_t)dev)->total_bytes;
    }
    return result;
}

/* What the device may be able to do and this library does not carry. */
static bool is_not_carried(CUdevice_attribute attribute)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED:
        return true;
    default:
        return false;
    }
}

static int attribute_value(uint32_t ordinal, CUdevice_attribute attribute)
{
    int32_t value = fgv_device_facts(ordinal)->attributes[attribute];
    if (attribute == CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES && value != FGV_FACTS_NO_VALUE) {
        return value & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    return value != FGV_FACTS_NO_VALUE && is_not_carried(attribute) ? 0 : value;
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    CUresult result = fgv_device_check(dev);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pi || (unsigned)attrib >= FGV_FACTS_NR_ATTRIBUTES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int value = attribute_value((uint32_t)dev, attrib);
    if (value == FGV_FACTS_NO_VALUE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pi = value;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    CUresult result = question(dev, prop);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const int32_t *values = fgv_device_facts((uint32_t)dev)->attributes;
    *prop = (CUdevprop){
        .maxThreadsPerBlock = values[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
        .maxThreadsDim = {values[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X], values[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y],
                          values[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z]},
        .maxGridSize = {values[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X], values[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y],
                        values[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z]},
        .sharedMemPerBlock = values[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK],
        .totalConstantMemory = values[CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY],
        .SIMDWidth = values[CU_DEVICE_ATTRIBUTE_WARP_SIZE],
        .memPitch = values[CU_DEVICE_ATTRIBUTE_MAX_PITCH],
        .regsPerBlock = values[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK],
        .clockRate = values[CU_DEVICE_ATTRIBUTE_CLOCK_RATE],
        .textureAlign = values[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT],
    };
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    CUresult result = question(dev, major ? minor : NULL);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *major = attribute_value((uint32_t)dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = attribute_value((uint32_t)dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return CUDA_SUCCESS;
}

/* A thing of Windows: the driver for Linux has none to give. */
CUresult cuDeviceGetLuid(char *luid, unsigned int *deviceNodeMask, CUdevice dev)
{
    CUresult result = fgv_device_check(dev);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return !luid || !deviceNodeMask ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    CUresult result = fgv_device_check(dev);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const char *known = fgv_device_facts((uint32_t)dev)->pci_bus_id;
    size_t length = strnlen(known, sizeof(fgv_device_facts(0)->pci_bus_id));
    if (!pciBusId || len <= 0 || (size_t)len <= length) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(pciBusId, known, length);
    pciBusId[length] = '\0';
    return CUDA_SUCCESS;
}

static bool is_function(char letter)
{
    return letter >= '0' && letter <= '7';
}

/* Reads "0000:3b:00.0", "3b:00.0" or "3b:00": domain, bus, device and function. */
static bool pci_read(const char *text, unsigned address[4])
{
    unsigned fields[3] = {0, 0, 0};
    unsigned nr_fields = 0, nr_digits = 0;
    for (;; text++) {
        unsigned digit = *text >= '0' && *text <= '9'   ? (unsigned)(*text - '0')
                         : *text >= 'a' && *text <= 'f' ? (unsigned)(*text - 'a') + 10
                         : *text >= 'A' && *text <= 'F' ? (unsigned)(*text - 'A') + 10
                                                        : 16;
        if (digit < 16 && nr_digits < 8) {
            fields[nr_fields] = fields[nr_fields] << 4 | digit;
            nr_digits++;
            continue;
        }
        if (nr_digits == 0) {
            return false;
        }
        nr_fields++;
        nr_digits = 0;
        if (*text != ':' || nr_fields == 3) {
            break;
        }
    }
    bool has_function = text[0] == '.' && is_function(text[1]) && text[2] == '\0';
    if (nr_fields < 2 || (*text != '\0' && !has_function)) {
        return false;
    }
    address[0] = nr_fields == 3 ? fields[0] : 0;
    address[1] = fields[nr_fields - 2];
    address[2] = fields[nr_fields - 1];
    address[3] = has_function ? (unsigned)(text[1] - '0') : 0;
    return true;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    unsigned wanted[4], found[4];
    if (!dev || !pciBusId || !pci_read(pciBusId, wanted)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (uint32_t i = 0; i < fgv_guest.nr_devices; i++) {
        if (!pci_read(fgv_device_facts(i)->pci_bus_id, found) || memcmp(wanted, found, sizeof(wanted)) != 0) {
            continue;
        }
        *dev = (CUdevice)i;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice)
{
    CUresult result = fgv_device_check(srcDevice);
    if (result == CUDA_SUCCESS) {
        result = fgv_device_check(dstDevice);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (value && srcDevice == dstDevice) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!value || (unsigned)attrib < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
        (unsigned)attrib > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *value = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    CUresult result = fgv_device_check(dev);
    if (result == CUDA_SUCCESS) {
        result = question(peerDev, canAccessPeer);
    }
    if (result == CUDA_SUCCESS) {
        *canAccessPeer = 0;
    }
    return result;
}

CUresult cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev)
{
    (void)type; /* an unknown one is not supported either */
    CUresult result = question(dev, pi);
    if (result == CUDA_SUCCESS) {
        *pi = 0;
    }
    return result;
}

static CUresult green_refuse(void)
{
    CUresult result = fgv_client_is_open();
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_SUPPORTED;
}

static const struct fgv_green_ops green_ops = {.refuse = green_refuse};

__attribute__((constructor)) static void lend_green_ops(void)
{
    fgv_green_set_ops(&green_ops);
}

CUresult cuProfilerStart(void)
{
    return fgv_client_is_open();
}

CUresult cuProfilerStop(void)
{
    return fgv_client_is_open();
}
