/* Start and end, and what is read off the region: see library.h. */
#include "nvml/library.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "region/find.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fgv_region region;
static _Atomic uint32_t nr_inits;
static const struct nvml_device devices[FGV_FACTS_MAX_DEVICES] = {{0}, {1}, {2},  {3},  {4},  {5},  {6},  {7},
                                                                  {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}};

/* Tools ask whether there is a GPU: that there is none is an answer, and nothing to be told on stderr. */
void fgv_log_cause(enum fgv_cause cause, const char *format, ...)
{
    (void)cause;
    (void)format;
}

static nvmlReturn_t region_open(void)
{
    if (!region.base) {
        CUresult result = fgv_find_region(&region, NULL, NULL);
        if (result != CUDA_SUCCESS) {
            region.base = NULL;
            return result == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH ? NVML_ERROR_LIB_RM_VERSION_MISMATCH
                                                               : NVML_ERROR_DRIVER_NOT_LOADED;
        }
    }
    struct fgv_facts facts;
    if (region.facts_bytes < sizeof(facts)) {
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    }
    memcpy(&facts, region.facts, sizeof(facts));
    if (facts.version != FGV_FACTS_VERSION || facts.nr_devices > FGV_FACTS_MAX_DEVICES) {
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    }
    return atomic_load_explicit(&region.header->host_state, memory_order_acquire) == FGV_HOST_UP
               ? NVML_SUCCESS
               : NVML_ERROR_DRIVER_NOT_LOADED;
}

static nvmlReturn_t library_start(void)
{
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = nr_inits == 0 ? region_open() : NVML_SUCCESS;
    if (result == NVML_SUCCESS) {
        nr_inits++;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

NVML_EXPORT nvmlReturn_t nvmlInit(void)
{
    return library_start();
}

NVML_EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return library_start();
}

NVML_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags; /* what to do without a device: the same */
    return library_start();
}

/* The region stays mapped: another thread may be reading it. */
NVML_EXPORT nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    bool is_open = nr_inits != 0;
    nr_inits -= is_open;
    pthread_mutex_unlock(&lock);
    return is_open ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

NVML_EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
#define RESULT_CASE(name, number, text)                                                                                \
    case name:                                                                                                         \
        return text;
        NVML_RESULTS(RESULT_CASE)
#undef RESULT_CASE
    }
    return "Unknown Error";
}

const struct fgv_region *nvml_region(void)
{
    return nr_inits != 0 ? &region : NULL;
}

static const struct fgv_facts *facts_shared(void)
{
    return (const struct fgv_facts *)(const void *)region.facts;
}

uint32_t nvml_nr_devices(void)
{
    uint32_t nr = facts_shared()->nr_devices;
    return nr < FGV_FACTS_MAX_DEVICES ? nr : FGV_FACTS_MAX_DEVICES;
}

nvmlDevice_t nvml_device(uint32_t index)
{
    return &devices[index];
}

nvmlReturn_t nvml_device_facts(nvmlDevice_t device, struct fgv_device_facts *facts)
{
    if (!nvml_region()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if (device < devices || device >= devices + nvml_nr_devices()) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    memcpy(facts, &facts_shared()->devices[device->index], sizeof(*facts));
    facts->name[sizeof(facts->name) - 1] = '\0';
    facts->pci_bus_id[sizeof(facts->pci_bus_id) - 1] = '\0';
    return NVML_SUCCESS;
}

bool nvml_program_at(uint32_t index, struct fgv_program *program)
{
    return fgv_program_read(&region, index, program);
}

nvmlReturn_t nvml_text(char *to, unsigned int room, const char *text)
{
    if (!to) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    size_t bytes = strlen(text) + 1;
    if (room < bytes) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    memcpy(to, text, bytes);
    return NVML_SUCCESS;
}

void nvml_uuid_text(const uint8_t uuid[16], char text[41])
{
    char *at = text + sprintf(text, "GPU-");
    for (int i = 0; i < 16; i++) {
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    }
}

static void driver_version(char text[32])
{
    uint32_t version = facts_shared()->kernel_driver;
    int cuda = facts_shared()->driver_version;
    if (version == 0) { /* a device library without a kernel module has one version, that of CUDA */
        snprintf(text, 32, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    } else {
        snprintf(text, 32, "%u.%u.%02u", version / 100000, version / 100 % 1000, version % 100);
    }
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    char text[32];
    if (!nvml_region()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    driver_version(text);
    return nvml_text(version, length, text);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    char driver[32];
    char text[48];
    if (!nvml_region()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    driver_version(driver);
    snprintf(text, sizeof(text), "%d.%s", facts_shared()->driver_version / 1000, driver);
    return nvml_text(version, length, text);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    if (!nvml_region()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if (!version) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *version = facts_shared()->driver_version;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    struct fgv_program program;
    if (!nvml_region()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    for (uint32_t i = 0; i < FGV_NR_CLIENTS; i++) {
        if (nvml_program_at(i, &program) && program.pid == pid) {
            return nvml_text(name, length, program.name);
        }
    }
    return NVML_ERROR_NOT_FOUND;
}
