/* What the vGPU uses: memory, time, programs. It is the sum over the programs of the region. */
#include <string.h>
#include <time.h>

#include "nvml/library.h"

#define PERMILLE_PER_PERCENT 10u
#define MAX_PERMILLE         1000u

static uint64_t used_bytes(void)
{
    uint64_t bytes = 0;
    struct fgv_program program;
    for (uint32_t i = 0; i < FGV_NR_CLIENTS; i++) {
        if (nvml_program_at(i, &program)) {
            bytes += program.memory_bytes;
        }
    }
    return bytes;
}

static nvmlReturn_t memory(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct fgv_device_facts facts;
    nvmlReturn_t result = nvml_device_facts(device, &facts);
    if (result != NVML_SUCCESS) {
        return result;
    }
    uint64_t used = used_bytes();
    *memory = (nvmlMemory_t){.total = facts.total_bytes, .used = used < facts.total_bytes ? used : facts.total_bytes};
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info)
{
    nvmlMemory_t found = {0};
    nvmlReturn_t result = memory(device, &found);
    if (result != NVML_SUCCESS || !info) {
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    *info = found;
    return NVML_SUCCESS;
}

/* Nothing of a vGPU is reserved: what the driver keeps for itself is not in its quota. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info)
{
    nvmlMemory_t found = {0};
    nvmlReturn_t result = memory(device, &found);
    if (result != NVML_SUCCESS || !info) {
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    if (info->version != NVML_MEMORY_V2) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    info->total = found.total;
    info->reserved = 0;
    info->free = found.free;
    info->used = found.used;
    return NVML_SUCCESS;
}

/* gpu: the part of the last second for which the vGPU was charged. How busy memory was is not measured. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    struct fgv_device_facts facts;
    struct fgv_program program;
    uint32_t permille = 0;
    nvmlReturn_t result = nvml_device_facts(device, &facts);
    if (result != NVML_SUCCESS || !utilization) {
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    for (uint32_t i = 0; i < FGV_NR_CLIENTS; i++) {
        if (nvml_program_at(i, &program)) {
            permille += program.gpu_permille < MAX_PERMILLE ? program.gpu_permille : MAX_PERMILLE;
        }
    }
    permille = permille < MAX_PERMILLE ? permille : MAX_PERMILLE;
    *utilization = (nvmlUtilization_t){.gpu = permille / PERMILLE_PER_PERCENT};
    return NVML_SUCCESS;
}

/* Calls `take(to, place, program)` for each program while there is room. *count: room, then how many there are. */
static nvmlReturn_t programs(nvmlDevice_t device, unsigned int *count, void *to,
                             void (*take)(void *to, unsigned int place, const struct fgv_program *program))
{
    struct fgv_device_facts facts;
    struct fgv_program program;
    nvmlReturn_t result = nvml_device_facts(device, &facts);
    if (result != NVML_SUCCESS || !count || (*count != 0 && !to)) {
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    unsigned int nr = 0;
    for (uint32_t i = 0; i < FGV_NR_CLIENTS; i++) {
        if (!nvml_program_at(i, &program)) {
            continue;
        }
        if (nr < *count) {
            take(to, nr, &program);
        }
        nr++;
    }
    result = nr > *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    *count = nr;
    return result;
}

static void take_v1(void *to, unsigned int place, const struct fgv_program *program)
{
    ((nvmlProcessInfo_v1_t *)to)[place] =
        (nvmlProcessInfo_v1_t){.pid = program->pid, .usedGpuMemory = program->memory_bytes};
}

static void take(void *to, unsigned int place, const struct fgv_program *program)
{
    ((nvmlProcessInfo_t *)to)[place] = (nvmlProcessInfo_t){.pid = program->pid,
                                                           .usedGpuMemory = program->memory_bytes,
                                                           .gpuInstanceId = NVML_NO_INSTANCE,
                                                           .computeInstanceId = NVML_NO_INSTANCE};
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                              nvmlProcessInfo_v1_t *infos)
{
    return programs(device, count, infos, take_v1);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                                 nvmlProcessInfo_t *infos)
{
    return programs(device, count, infos, take);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                                 nvmlProcessInfo_t *infos)
{
    return programs(device, count, infos, take);
}

/* There is no graphics here, and no MPS. */
static nvmlReturn_t no_programs(nvmlDevice_t device, unsigned int *count)
{
    struct fgv_device_facts facts;
    nvmlReturn_t result = nvml_device_facts(device, &facts);
    if (result != NVML_SUCCESS || !count) {
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    }
    *count = 0;
    return NVML_SUCCESS;
}

#define NO_PROGRAMS(name)                                                                                              \
    NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, void *infos)                               \
    {                                                                                                                  \
        (void)infos;                                                                                                   \
        return no_programs(device, count);                                                                             \
    }

NO_PROGRAMS(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROGRAMS(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROGRAMS(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROGRAMS(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROGRAMS(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROGRAMS(nvmlDeviceGetMPSComputeRunningProcesses_v3)

static void take_sample(void *to, unsigned int place, const struct fgv_program *program)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    ((nvmlProcessUtilizationSample_t *)to)[place] = (nvmlProcessUtilizationSample_t){
        .pid = program->pid,
        .timeStamp = (unsigned long long)now.tv_sec * 1000000u + (unsigned long long)now.tv_nsec / 1000u,
        .smUtil = program->gpu_permille / PERMILLE_PER_PERCENT,
    };
}

/* One sample for each program, of the last second; `since` is before that or asks for nothing. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                         unsigned int *count, unsigned long long since)
{
    (void)since;
    if (!samples && count) {
        *count = 0; /* asks how many there are */
    }
    return programs(device, count, samples, take_sample);
}
