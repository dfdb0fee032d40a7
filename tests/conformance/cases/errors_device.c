/* The table of errors: devices, primary contexts, contexts. */
#include "case.h"

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);

CASE(errors_of_device_calls)
{
    CUdevice device = 0;
    CUuuid uuid;
    char name[64], luid[8];
    unsigned int mask = 0;
    int value = 0, other = 0;
    size_t bytes = 0;
    CUdevprop properties;

    ROW("no result", cuDeviceGet, NULL, 0);
    ROW("ordinal -1", cuDeviceGet, &device, -1);
    ROW("ordinal 1000", cuDeviceGet, &device, 1000);
    ROW("no result", cuDeviceGetCount, NULL);
    ROW("no name", cuDeviceGetName, NULL, 10, 0);
    ROW("length 0", cuDeviceGetName, name, 0, 0);
    ROW("length -1", cuDeviceGetName, name, -1, 0);
    ROW("device 1000", cuDeviceGetName, name, 64, 1000);
    ROW("device -1", cuDeviceGetName, name, 64, -1);
    ROW("no result", cuDeviceGetUuid, NULL, 0);
    ROW("device 1000", cuDeviceGetUuid, &uuid, 1000);
    ROW("no result", cuDeviceTotalMem, NULL, 0);
    ROW("device 1000", cuDeviceTotalMem, &bytes, 1000);
    ROW("no result", cuDeviceGetAttribute, NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0);
    ROW("device 1000", cuDeviceGetAttribute, &value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1000);
    ROW("attribute 0", cuDeviceGetAttribute, &value, (CUdevice_attribute)0, 0);
    ROW("attribute 9999", cuDeviceGetAttribute, &value, (CUdevice_attribute)9999, 0);
    ROW("attribute -5", cuDeviceGetAttribute, &value, (CUdevice_attribute)-5, 0);
    ROW("attribute and device wrong", cuDeviceGetAttribute, &value, (CUdevice_attribute)9999, 1000);
    ROW("no result", cuDeviceGetProperties, NULL, 0);
    ROW("device 1000", cuDeviceGetProperties, &properties, 1000);
    ROW("no major", cuDeviceComputeCapability, NULL, &other, 0);
    ROW("no minor", cuDeviceComputeCapability, &other, NULL, 0);
    ROW("device 1000", cuDeviceComputeCapability, &value, &other, 1000);
    ROW("no luid", cuDeviceGetLuid, NULL, &mask, 0);
    ROW("device 1000", cuDeviceGetLuid, luid, &mask, 1000);
    ROW("no name", cuDeviceGetPCIBusId, NULL, 64, 0);
    ROW("length 0", cuDeviceGetPCIBusId, name, 0, 0);
    ROW("length -1", cuDeviceGetPCIBusId, name, -1, 0);
    ROW("device 1000", cuDeviceGetPCIBusId, name, 64, 1000);
    ROW("no result", cuDeviceGetByPCIBusId, NULL, "0000:00:00.0");
    ROW("no name", cuDeviceGetByPCIBusId, &device, NULL);
    ROW("an empty name", cuDeviceGetByPCIBusId, &device, "");
    ROW("no such bus", cuDeviceGetByPCIBusId, &device, "abcd:ef:01.0");
    ROW("no result", cuDeviceCanAccessPeer, NULL, 0, 0);
    ROW("device 1000", cuDeviceCanAccessPeer, &value, 1000, 0);
    ROW("peer 1000", cuDeviceCanAccessPeer, &value, 0, 1000);
    ROW("no result", cuDeviceGetP2PAttribute, NULL, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0, 0);
    ROW("device 1000", cuDeviceGetP2PAttribute, &value, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 1000, 0);
    ROW("attribute 77", cuDeviceGetP2PAttribute, &value, (CUdevice_P2PAttribute)77, 0, 0);
    ROW("no result", cuDeviceGetExecAffinitySupport, NULL, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0);
    ROW("device 1000", cuDeviceGetExecAffinitySupport, &value, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 1000);
    ROW("type 77", cuDeviceGetExecAffinitySupport, &value, (CUexecAffinityType)77, 0);
}

CASE(errors_of_primary_contexts)
{
    CUcontext context = NULL;
    unsigned int flags = 0;
    int is_active = 0;

    ROW("no result", cuDevicePrimaryCtxRetain, NULL, 0);
    ROW("device 1000", cuDevicePrimaryCtxRetain, &context, 1000);
    ROW("device -1", cuDevicePrimaryCtxRetain, &context, -1);
    ROW("device 1000", cuDevicePrimaryCtxRelease, 1000);
    ROW("device 1000", cuDevicePrimaryCtxReset, 1000);
    ROW("device 1000", cuDevicePrimaryCtxSetFlags, 1000, 0);
    ROW("two ways to wait", cuDevicePrimaryCtxSetFlags, 0, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD);
    ROW("unknown flags", cuDevicePrimaryCtxSetFlags, 0, 0x8000);
    ROW("device 1000", cuDevicePrimaryCtxGetState, 1000, &flags, &is_active);
    ROW("no flags", cuDevicePrimaryCtxGetState, 0, NULL, &is_active);
    ROW("no state", cuDevicePrimaryCtxGetState, 0, &flags, NULL);
}

CASE(errors_of_contexts)
{
    CUcontext own = NULL, primary = NULL;
    CUfunc_cache cache;
    CUsharedconfig shared;
    unsigned int flags = 0;
    unsigned long long id = 0;
    size_t value = 0;

    MUST(cuCtxGetCurrent, &primary);
    ROW("no result", cuCtxCreate_v2, NULL, 0, 0);
    ROW("device 1000", cuCtxCreate_v2, &own, 0, 1000);
    ROW("unknown flags", cuCtxCreate_v2, &own, 0x10000, 0);
    ROW("no context", cuCtxDestroy, NULL);
    ROW("the primary context", cuCtxDestroy, primary);
    ROW("no context", cuCtxPushCurrent, NULL);
    ROW("no result", cuCtxGetCurrent, NULL);
    ROW("no result", cuCtxGetDevice, NULL);
    ROW("no result", cuCtxGetFlags, NULL);
    ROW("unknown flags", cuCtxSetFlags, 0x10000);
    ROW("two ways to wait", cuCtxSetFlags, 3);
    ROW("no result", cuCtxGetId, NULL, NULL);
    ROW("the current context", cuCtxGetId, NULL, &id);
    ROW("no result", cuCtxGetApiVersion, primary, NULL);
    ROW("no context", cuCtxGetApiVersion, NULL, &flags);
    ROW("no result", cuCtxGetLimit, NULL, CU_LIMIT_STACK_SIZE);
    ROW("limit 99", cuCtxGetLimit, &value, (CUlimit)99);
    ROW("limit -1", cuCtxGetLimit, &value, (CUlimit)-1);
    ROW("limit 99", cuCtxSetLimit, (CUlimit)99, 1);
    ROW("a limit of more than there is", cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, (size_t)1 << 60);
    ROW("a depth", cuCtxSetLimit, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 5);
    ROW("a cache granularity of 7", cuCtxSetLimit, CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 7);
    ROW("a persisting size", cuCtxSetLimit, CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 1 << 20);
    ROW("no result", cuCtxGetCacheConfig, NULL);
    ROW("config 9", cuCtxSetCacheConfig, (CUfunc_cache)9);
    ROW("config -1", cuCtxSetCacheConfig, (CUfunc_cache)-1);
    ROW("no result", cuCtxGetSharedMemConfig, NULL);
    ROW("config 9", cuCtxSetSharedMemConfig, (CUsharedconfig)9);
    ROW("all in order", cuCtxGetCacheConfig, &cache);
    ROW("all in order", cuCtxGetSharedMemConfig, &shared);
    ROW("no context", cuCtxEnablePeerAccess, NULL, 0);
    ROW("no context", cuCtxDisablePeerAccess, NULL);
}

ALONE(errors_of_contexts_that_are_none)
{
    CUcontext none = (CUcontext)0x123456780;
    unsigned int version = 0;
    CUdevice device = 0;

    ROW("an invented context", cuCtxSetCurrent, none);
    ROW("an invented context", cuCtxPushCurrent, none);
    ROW("an invented context", cuCtxDestroy, none);
    ROW("an invented context", cuCtxGetApiVersion, none, &version);
    ROW("an invented context", cuCtxSynchronize_v2, none);
    ROW("an invented context", cuCtxGetDevice_v2, &device, none);
    ROW("an invented context", cuCtxEnablePeerAccess, none, 0);
}
