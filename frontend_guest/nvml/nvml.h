/*
 * NVML as programs call it: the part of NVIDIA's management library that this one answers. Names, numbers and layouts
 * are NVML's; a newer call of the same name has a suffix, and both stay.
 */
#ifndef FRONTEND_GUEST_NVML_NVML_H
#define FRONTEND_GUEST_NVML_NVML_H

#include <stdint.h>

#define NVML_EXPORT __attribute__((visibility("default")))

/* X(name, number, text): results. */
/* clang-format off */
#define NVML_RESULTS(X) \
    X(NVML_SUCCESS, 0, "Success") \
    X(NVML_ERROR_UNINITIALIZED, 1, "Uninitialized") \
    X(NVML_ERROR_INVALID_ARGUMENT, 2, "Invalid Argument") \
    X(NVML_ERROR_NOT_SUPPORTED, 3, "Not Supported") \
    X(NVML_ERROR_NO_PERMISSION, 4, "Insufficient Permissions") \
    X(NVML_ERROR_ALREADY_INITIALIZED, 5, "Already Initialized") \
    X(NVML_ERROR_NOT_FOUND, 6, "Not Found") \
    X(NVML_ERROR_INSUFFICIENT_SIZE, 7, "Insufficient Size") \
    X(NVML_ERROR_INSUFFICIENT_POWER, 8, "Insufficient External Power") \
    X(NVML_ERROR_DRIVER_NOT_LOADED, 9, "Driver Not Loaded") \
    X(NVML_ERROR_TIMEOUT, 10, "Timeout") \
    X(NVML_ERROR_IRQ_ISSUE, 11, "Interrupt Request Issue") \
    X(NVML_ERROR_LIBRARY_NOT_FOUND, 12, "NVML Shared Library Not Found") \
    X(NVML_ERROR_FUNCTION_NOT_FOUND, 13, "Function Not Found") \
    X(NVML_ERROR_CORRUPTED_INFOROM, 14, "Corrupted infoROM") \
    X(NVML_ERROR_GPU_IS_LOST, 15, "GPU is lost") \
    X(NVML_ERROR_RESET_REQUIRED, 16, "GPU requires reset") \
    X(NVML_ERROR_OPERATING_SYSTEM, 17, "GPU access blocked by the operating system") \
    X(NVML_ERROR_LIB_RM_VERSION_MISMATCH, 18, "Driver/library version mismatch") \
    X(NVML_ERROR_IN_USE, 19, "In use by another client") \
    X(NVML_ERROR_MEMORY, 20, "Insufficient Memory") \
    X(NVML_ERROR_NO_DATA, 21, "No data") \
    X(NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, 22, "Requested vGPU operation is not available on target device") \
    X(NVML_ERROR_INSUFFICIENT_RESOURCES, 23, "Insufficient resources") \
    X(NVML_ERROR_FREQ_NOT_SUPPORTED, 24, "Frequency not supported") \
    X(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, 25, "Argument version mismatch") \
    X(NVML_ERROR_DEPRECATED, 26, "Deprecated") \
    X(NVML_ERROR_UNKNOWN, 999, "Unknown Error")
/* clang-format on */

#define NVML_RESULT_ENUM(name, number, text) name = number,
typedef enum { NVML_RESULTS(NVML_RESULT_ENUM) } nvmlReturn_t;
#undef NVML_RESULT_ENUM

typedef const struct nvml_device *nvmlDevice_t;

typedef struct {
    unsigned long long total, free, used; /* bytes */
} nvmlMemory_t;

typedef struct {
    unsigned int version; /* NVML_MEMORY_V2 */
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned int gpu, memory; /* per cent */
} nvmlUtilization_t;

/* Kinds of access between devices have numbers below this. */
#define NVML_P2P_CAPS_INDEX_UNKNOWN 5u
typedef enum { NVML_P2P_STATUS_NOT_SUPPORTED = 5 } nvmlGpuP2PStatus_t;

typedef struct {
    char busIdLegacy[16]; /* "0000:01:00.0" */
    unsigned int domain, bus, device;
    unsigned int pciDeviceId, pciSubSystemId;
    char busId[32]; /* "00000000:01:00.0" */
} nvmlPciInfo_t;

typedef struct {
    char busId[16];
    unsigned int domain, bus, device;
    unsigned int pciDeviceId, pciSubSystemId;
    unsigned int reserved[4];
} nvmlPciInfo_v2_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
    unsigned int pid;
    unsigned long long timeStamp; /* us */
    unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

#define NVML_STRUCT_VERSION(type, number) ((unsigned int)(sizeof(type) | (number) << 24u))
#define NVML_MEMORY_V2                    NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2u)
#define NVML_ARCHITECTURE_UNKNOWN         0xffffffffu
#define NVML_NO_INSTANCE                  0xffffffffu

_Static_assert(sizeof(nvmlMemory_v2_t) == 40, "memory, v2");
_Static_assert(sizeof(nvmlPciInfo_t) == 68, "PCI, v3");
_Static_assert(sizeof(nvmlPciInfo_v2_t) == 52, "PCI, v2");
_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16, "process, v1");
_Static_assert(sizeof(nvmlProcessInfo_t) == 24, "process");
_Static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32, "utilization of a process");

#endif
