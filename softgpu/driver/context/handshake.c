/* The doors through which NVIDIA's runtime comes in: the export tables, and the look-up of every other call. */
#include "cuda_api/handshake.h"

#include <stddef.h>

#include "cuda_api/procs.h"
#include "cuda_api/prototypes.h"
#include "cuda_api/refusals.h"
#include "stream/stream.h"

static int driver_version(void)
{
    return SGP_DRIVER_VERSION;
}

static int device_count(void)
{
    return sgp_nr_devices;
}

static CUresult device_uuid(int ordinal, CUuuid *uuid)
{
    sgp_device_uuid(sgp_devices[ordinal].physical, (uint8_t *)uuid->bytes);
    return CUDA_SUCCESS;
}

static CUresult device_pci(int ordinal, int domain_bus_device[3])
{
    domain_bus_device[0] = 0;
    domain_bus_device[1] = SGP_FIRST_PCI_BUS + sgp_devices[ordinal].bus;
    domain_bus_device[2] = 0;
    return CUDA_SUCCESS;
}

static CUresult current_context(CUcontext *context)
{
    *context = sgp_context_current();
    return CUDA_SUCCESS;
}

static CUresult primary_context(CUcontext *context, CUdevice dev)
{
    struct sgp_device *device;
    CUresult result = sgp_enter_device(dev, &device);

    if (result) {
        return result;
    }
    *context = sgp_context_primary(device);
    return sgp_leave(*context ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

static CUresult context_id(CUcontext context, uint64_t *id)
{
    unsigned long long number;
    CUresult result = cuCtxGetId(context, &number);

    if (!result) {
        *id = number;
    }
    return result;
}

static CUresult stream_object(CUcontext context, CUstream stream, void **object)
{
    struct CUstream_st *resolved;
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!context) {
        context = sgp_context_current();
    }
    if (!context || !sgp_object_is(context, SGP_CONTEXT) || !context->is_active) {
        return sgp_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    result = sgp_stream_resolve(context, stream, &resolved);
    if (!result) {
        *object = resolved;
    }
    return sgp_leave(result);
}

static CUresult stream_object_id(CUcontext context, void *object, uint64_t *id)
{
    CUresult result = sgp_enter_object(object, SGP_STREAM, CUDA_ERROR_INVALID_HANDLE);

    (void)context;
    if (result) {
        return result;
    }
    *id = ((struct CUstream_st *)object)->id;
    return sgp_leave(CUDA_SUCCESS);
}

static const struct fgv_handshake_ops ops = {
    .driver_version = driver_version,
    .device_count = device_count,
    .device_uuid = device_uuid,
    .device_pci = device_pci,
    .current_context = current_context,
    .primary_context = primary_context,
    .module_load = cuModuleLoadData,
    .context_id = context_id,
    .stream_object = stream_object,
    .stream_object_id = stream_object_id,
};

__attribute__((constructor)) static void lend_ops(void)
{
    fgv_handshake_set_ops(&ops);
}

SGP_EXPORT CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
    return fgv_handshake_table(ppExportTable, pExportTableId);
}

SGP_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                        CUdriverProcAddressQueryResult *symbolStatus)
{
    const cuuint64_t both = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    int status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    fgv_proc found;

    if (!symbol || !pfn || (flags & ~both)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    found = fgv_proc_find(symbol, cudaVersion, flags, &status);
    if (!found) {
        found = fgv_refusal_find(symbol, cudaVersion, flags, &status);
    }
    *pfn = (void *)found;
    if (symbolStatus) {
        *symbolStatus = (CUdriverProcAddressQueryResult)status;
    }
    if (!found) {
        sgp_log("procs", "cuGetProcAddress: no %s for CUDA %d", symbol, cudaVersion);
    }
    return CUDA_SUCCESS;
}

CUresult fgv_refuse(const char *name, CUresult result)
{
    sgp_log("procs", "%s is not carried", name);
    return result;
}

SGP_EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    CUresult result = cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);

    return result || *pfn ? result : CUDA_ERROR_NOT_FOUND;
}
