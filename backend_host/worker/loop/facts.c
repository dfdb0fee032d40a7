/*
 * Asks the device library everything that a guest may know without asking: see cuda_api/facts.h. Done once by a process
 * of its own, so that the daemon itself never opens a driver.
 */
#include "cuda_api/facts.h"

#include <stdio.h>
#include <string.h>

#include "loop/face.h"

#define COVERED_VERSION 13000 /* the newest CUDA that our table of calls describes */

/* "... Kernel Module  580.65.06  ..." */
static uint32_t kernel_driver_version(void)
{
    char text[256] = "";
    unsigned int parts[3] = {0, 0, 0};
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    if (!file) {
        return 0;
    }
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    for (const char *at = text; *at; at++) {
        if (at[0] == ' ' && sscanf(at, " %u.%u.%u", &parts[0], &parts[1], &parts[2]) >= 2) {
            break;
        }
    }
    return parts[0] < 42000 && parts[1] < 1000 && parts[2] < 100 ? parts[0] * 100000 + parts[1] * 100 + parts[2] : 0;
}

static void ask_attributes(const struct fgv_driver *driver, CUdevice device, struct fgv_device_facts *facts)
{
    for (uint32_t i = 0; i < FGV_FACTS_NR_ATTRIBUTES; i++) {
        int value = 0;
        bool is_known = i != 0 && driver->cuDeviceGetAttribute(&value, (CUdevice_attribute)i, device) == CUDA_SUCCESS;
        facts->attributes[i] = is_known ? value : FGV_FACTS_NO_VALUE;
    }
}

/* What Linux says of the device in one of its files, as a number, cut off at a decimal point; 0: nothing. */
static uint32_t bus_number(const char *pci_bus_id, const char *file_name)
{
    char path[128], text[32] = "";
    unsigned int number = 0;
    size_t length = (size_t)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", pci_bus_id, file_name);
    for (char *at = path; *at; at++) {
        *at = *at >= 'A' && *at <= 'F' ? (char)(*at - 'A' + 'a') : *at;
    }
    FILE *file = length < sizeof(path) ? fopen(path, "r") : NULL;
    if (!file) {
        return 0;
    }
    const bool is_number = fgets(text, sizeof(text), file) && sscanf(text, "%u", &number) == 1;
    fclose(file);
    return is_number ? number : 0;
}

/* The generation of PCI Express with this speed, "32.0 GT/s PCIe": each doubles it, but for the third. */
static uint8_t link_generation(uint32_t giga_transfers)
{
    static const uint32_t speeds[] = {2, 5, 8, 16, 32, 64};
    for (uint8_t i = 0; i < sizeof(speeds) / sizeof(*speeds); i++) {
        if (speeds[i] == giga_transfers) {
            return i + 1;
        }
    }
    return 0;
}

static uint8_t link_width(uint32_t nr_lanes)
{
    return nr_lanes <= 32 ? (uint8_t)nr_lanes : 0; /* 255: Linux does not know */
}

static void ask_link(struct fgv_device_facts *facts)
{
    const char *id = facts->pci_bus_id;
    facts->link_generation = link_generation(bus_number(id, "current_link_speed"));
    facts->link_width = link_width(bus_number(id, "current_link_width"));
    facts->most_link_generation = link_generation(bus_number(id, "max_link_speed"));
    facts->most_link_width = link_width(bus_number(id, "max_link_width"));
}

/* What only a context can tell. */
static CUresult ask_context(const struct fgv_driver *driver, CUdevice device, struct fgv_device_facts *facts)
{
    CUcontext context = NULL;
    CUresult result = driver->cuDevicePrimaryCtxRetain(&context, device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = driver->cuCtxSetCurrent(context);
    for (uint32_t i = 0; result == CUDA_SUCCESS && i < FGV_FACTS_NR_LIMITS; i++) {
        size_t value = 0;
        bool is_known = driver->cuCtxGetLimit && driver->cuCtxGetLimit(&value, (CUlimit)i) == CUDA_SUCCESS;
        facts->limits[i] = is_known ? value : UINT64_MAX;
    }
    int least = 0;
    int greatest = 0;
    unsigned int version = 0;
    if (result == CUDA_SUCCESS && driver->cuCtxGetStreamPriorityRange) {
        driver->cuCtxGetStreamPriorityRange(&least, &greatest);
    }
    if (result == CUDA_SUCCESS && driver->cuCtxGetApiVersion) {
        driver->cuCtxGetApiVersion(context, &version);
    }
    facts->least_priority = least;
    facts->greatest_priority = greatest;
    facts->context_api_version = version;
    ask_link(facts);
    driver->cuCtxSetCurrent(NULL);
    driver->cuDevicePrimaryCtxRelease_v2(device);
    return result;
}

static CUresult ask_device(const struct fgv_driver *driver, int ordinal, struct fgv_device_facts *facts)
{
    CUdevice device;
    CUresult result = driver->cuDeviceGet(&device, ordinal);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    size_t total_bytes = 0;
    CUuuid uuid = {{0}};
    driver->cuDeviceGetName(facts->name, (int)sizeof(facts->name) - 1, device);
    if (driver->cuDeviceGetUuid_v2) {
        driver->cuDeviceGetUuid_v2(&uuid, device);
    }
    driver->cuDeviceGetPCIBusId(facts->pci_bus_id, (int)sizeof(facts->pci_bus_id), device);
    driver->cuDeviceTotalMem_v2(&total_bytes, device);
    memcpy(facts->uuid, uuid.bytes, sizeof(facts->uuid));
    facts->total_bytes = total_bytes;
    ask_attributes(driver, device, facts);
    return ask_context(driver, device, facts);
}

/* What a kernel could reach of the host's ordinary memory is the worker's, and none of the guest's. */
static void no_host_memory(struct fgv_device_facts *device)
{
    device->attributes[CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS] = 0;
    device->attributes[CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES] = 0;
}

/* Facts of the device with this ordinal, as a guest sees it: there is no other. */
static CUresult ask_library(const struct fgv_driver *driver, int ordinal, struct fgv_facts *facts, int *nr_devices)
{
    int version = 0;
    CUresult result = driver->cuDeviceGetCount(nr_devices);
    if (result == CUDA_SUCCESS) {
        result = driver->cuDriverGetVersion(&version);
    }
    if (result == CUDA_SUCCESS && *nr_devices == 0) {
        result = CUDA_ERROR_NO_DEVICE;
    }
    facts->version = FGV_FACTS_VERSION;
    facts->kernel_driver = kernel_driver_version();
    facts->driver_version = version < COVERED_VERSION ? version : COVERED_VERSION;
    facts->nr_devices = 1;
    return result == CUDA_SUCCESS ? ask_device(driver, ordinal, &facts->devices[0]) : result;
}

int fgw_worker_probe_block(const char *library, int ordinal, struct fgw_facts_block *block, char *error,
                           uint32_t error_bytes)
{
    struct fgv_driver driver;
    struct fgv_facts facts = {0};
    int nr_devices = 0;
    CUresult result = (CUresult)fgw_worker_load(library, &driver, error, error_bytes);
    if (result != CUDA_SUCCESS) {
        return (int)result;
    }
    result = ask_library(&driver, ordinal, &facts, &nr_devices);
    block->nr_devices = (uint32_t)nr_devices;
    if (result != CUDA_SUCCESS) {
        snprintf(error, error_bytes, "%s: CUDA error %d while asking for device %d", library, (int)result, ordinal);
        return (int)result;
    }
    struct fgv_device_facts *device = &facts.devices[0];
    block->reaches_host = device->attributes[CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS] == 1;
    no_host_memory(device);
    block->nr_bytes = (uint32_t)sizeof(facts);
    memcpy(block->bytes, &facts, block->nr_bytes);
    memcpy(block->name, device->name, sizeof(block->name) - 1);
    memcpy(block->uuid, device->uuid, sizeof(block->uuid));
    memcpy(block->pci_bus_id, device->pci_bus_id, sizeof(block->pci_bus_id) - 1);
    block->memory_bytes = device->total_bytes;
    block->capability_major = device->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
    block->capability_minor = device->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
    block->driver_version = facts.driver_version;
    block->preempts = device->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED] == 1;
    return CUDA_SUCCESS;
}
