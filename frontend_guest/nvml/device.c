/* Which devices there are, and what each is: all of it from the facts. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cuda_api/types.h"
#include "nvml/library.h"

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    if (!nvml_region()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if (!count) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *count = nvml_nr_devices();
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    if (!nvml_region()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if (!device || index >= nvml_nr_devices()) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *device = nvml_device(index);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

typedef bool (*device_is)(const struct fgv_device_facts *facts, const char *text);

static nvmlReturn_t handle_find(const char *text, nvmlDevice_t *device, device_is is_it)
{
    if (!nvml_region()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if (!text || !device) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (uint32_t i = 0; i < nvml_nr_devices(); i++) {
        struct fgv_device_facts facts;
        if (nvml_device_facts(nvml_device(i), &facts) == NVML_SUCCESS && is_it(&facts, text)) {
            *device = nvml_device(i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

static bool has_uuid(const struct fgv_device_facts *facts, const char *text)
{
    char uuid[41];
    nvml_uuid_text(facts->uuid, uuid);
    return strcasecmp(uuid, text) == 0;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    return handle_find(uuid, device, has_uuid);
}

static bool pci_parse(const char *text, unsigned int address[3])
{
    return sscanf(text, "%x:%x:%x", &address[0], &address[1], &address[2]) == 3;
}

static bool has_pci_address(const struct fgv_device_facts *facts, const char *text)
{
    unsigned int its[3], asked[3];
    return pci_parse(facts->pci_bus_id, its) && pci_parse(text, asked) && memcmp(its, asked, sizeof(its)) == 0;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvmlDevice_t *device)
{
    return handle_find(pci, device, has_pci_address);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pci, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(pci, device);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    struct fgv_device_facts facts;
    nvmlReturn_t result = nvml_device_facts(device, &facts);
    if (result != NVML_SUCCESS || !index) {
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    *index = device->index;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    struct fgv_device_facts facts;
    nvmlReturn_t result = nvml_device_facts(device, &facts);
    return result != NVML_SUCCESS ? result : nvml_text(name, length, facts.name);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    struct fgv_device_facts facts;
    char text[41];
    nvmlReturn_t result = nvml_device_facts(device, &facts);
    if (result != NVML_SUCCESS) {
        return result;
    }
    nvml_uuid_text(facts.uuid, text);
    return nvml_text(uuid, length, text);
}

/* What the device is on its bus is not among the facts: the ids of device and board read 0. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    struct fgv_device_facts facts;
    unsigned int address[3];
    nvmlReturn_t result = nvml_device_facts(device, &facts);
    if (result != NVML_SUCCESS || !pci) {
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    if (!pci_parse(facts.pci_bus_id, address)) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *pci = (nvmlPciInfo_t){.domain = address[0], .bus = address[1], .device = address[2]};
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0", address[0] & 0xffff, address[1] & 0xff,
             address[2] & 0xff);
    snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", address[0], address[1] & 0xff, address[2] & 0xff);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
    nvmlPciInfo_t newer;
    nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, &newer);
    if (result != NVML_SUCCESS || !pci) {
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    *pci = (nvmlPciInfo_v2_t){.domain = newer.domain, .bus = newer.bus, .device = newer.device};
    memcpy(pci->busId, newer.busIdLegacy, sizeof(pci->busId));
    return NVML_SUCCESS;
}

/* An attribute of the device as CUDA numbers it. */
static nvmlReturn_t attribute(nvmlDevice_t device, CUdevice_attribute number, int *value)
{
    struct fgv_device_facts facts;
    nvmlReturn_t result = nvml_device_facts(device, &facts);
    if (result != NVML_SUCCESS || !value) {
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    if (facts.attributes[number] == FGV_FACTS_NO_VALUE) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *value = facts.attributes[number];
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    nvmlReturn_t result = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major);
    return result != NVML_SUCCESS ? result : attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *bits)
{
    return attribute(device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, (int *)bits);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode)
{
    return attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, (int *)mode);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *is_multi)
{
    return attribute(device, CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD, (int *)is_multi);
}

/* A vGPU is a share in time, not a part of a partitioned device. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *mode, unsigned int *pending)
{
    struct fgv_device_facts facts;
    nvmlReturn_t result = nvml_device_facts(device, &facts);
    if (result != NVML_SUCCESS || !mode || !pending) {
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    *mode = 0;
    *pending = 0;
    return NVML_SUCCESS;
}

/* Memory is copied between devices by the host, not by the devices. NVIDIA's says the same of a device and itself. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t peer, unsigned int index,
                                                nvmlGpuP2PStatus_t *status)
{
    struct fgv_device_facts facts;
    nvmlReturn_t result = nvml_device_facts(device, &facts);
    if (result == NVML_SUCCESS) {
        result = nvml_device_facts(peer, &facts);
    }
    if (result != NVML_SUCCESS || !status || index >= NVML_P2P_CAPS_INDEX_UNKNOWN) {
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    *status = NVML_P2P_STATUS_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

/* The link between host and device: what the guest has to do with the device goes over it. 0 is none that is known. */
static nvmlReturn_t link(nvmlDevice_t device, size_t offset, unsigned int *value)
{
    struct fgv_device_facts facts;
    nvmlReturn_t result = nvml_device_facts(device, &facts);
    if (result != NVML_SUCCESS || !value) {
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    const uint8_t known = ((const uint8_t *)&facts)[offset];
    if (known != 0) {
        *value = known;
    }
    return known != 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
    return link(device, offsetof(struct fgv_device_facts, link_generation), generation);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
    return link(device, offsetof(struct fgv_device_facts, link_width), width);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
    return link(device, offsetof(struct fgv_device_facts, most_link_generation), generation);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
    return link(device, offsetof(struct fgv_device_facts, most_link_generation), generation);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
    return link(device, offsetof(struct fgv_device_facts, most_link_width), width);
}

/* Mega transfers per second of one lane, by generation. */
static const unsigned int speeds[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t device, unsigned int *speed)
{
    unsigned int generation = 0;
    nvmlReturn_t result =
        speed ? nvmlDeviceGetCurrPcieLinkGeneration(device, &generation) : NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS) {
        *speed = speeds[generation % (sizeof(speeds) / sizeof(*speeds))];
    }
    return result;
}

/* Of this one NVML's numbers are those of the generations. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetPcieLinkMaxSpeed(nvmlDevice_t device, unsigned int *speed)
{
    return nvmlDeviceGetMaxPcieLinkGeneration(device, speed);
}

/* NVML's number of an architecture, from the compute capability. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture)
{
    static const unsigned int by_major[] = {[3] = 2, [5] = 3, [6] = 4, [7] = 5, [8] = 7, [9] = 9, [10] = 10, [12] = 10};
    int major = 0, minor = 0;
    nvmlReturn_t result =
        architecture ? nvmlDeviceGetCudaComputeCapability(device, &major, &minor) : NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS) {
        return result;
    }
    const bool is_known = major > 0 && major < (int)(sizeof(by_major) / sizeof(*by_major)) && by_major[major] != 0;
    *architecture = !is_known                  ? NVML_ARCHITECTURE_UNKNOWN
                    : major == 7 && minor >= 5 ? by_major[major] + 1
                    : major == 8 && minor == 9 ? by_major[major] + 1
                                               : by_major[major];
    return NVML_SUCCESS;
}

static nvmlReturn_t none(nvmlDevice_t device, unsigned int *value)
{
    struct fgv_device_facts facts;
    nvmlReturn_t result = nvml_device_facts(device, &facts);
    if (result != NVML_SUCCESS || !value) {
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    *value = 0;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    return none(device, count);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    return none(device, is_mig);
}
