/* What the runtime's private tables ask of this library: see cuda_api/handshake.h. None of it leaves the process. */
#include "cuda_api/handshake.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/thread.h"
#include "base/trace.h"
#include "call/device.h"
#include "context/context.h"
#include "context/stream.h"
#include "cuda_api/prototypes.h"
#include "region/client.h"

static int driver_version(void)
{
    int version = 0;
    cuDriverGetVersion(&version);
    return version;
}

static int device_count(void)
{
    return fgv_client_is_open() == CUDA_SUCCESS ? (int)fgv_guest.nr_devices : 0;
}

static CUresult device_uuid(int ordinal, CUuuid *uuid)
{
    return cuDeviceGetUuid_v2(uuid, ordinal);
}

static CUresult device_pci(int ordinal, int domain_bus_device[3])
{
    static const CUdevice_attribute asked[3] = {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                                                CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID};
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < 3 && result == CUDA_SUCCESS; i++) {
        result = cuDeviceGetAttribute(&domain_bus_device[i], asked[i], ordinal);
    }
    return result;
}

static CUresult current_context(CUcontext *context)
{
    *context = fgv_context_public(fgv_thread.current);
    return CUDA_SUCCESS;
}

static CUresult primary_context(CUcontext *context, CUdevice device)
{
    struct fgv_context *primary;
    CUresult result = fgv_device_check(device);
    if (result == CUDA_SUCCESS) {
        result = fgv_context_primary((uint32_t)device, &primary);
    }
    if (result == CUDA_SUCCESS) {
        *context = fgv_context_public(fgv_context_handle(primary));
    }
    return result;
}

static CUresult context_id(CUcontext context, uint64_t *id)
{
    unsigned long long answer = 0;
    CUresult result = cuCtxGetId(context, &answer);
    *id = answer;
    return result;
}

static CUresult stream_object(CUcontext context, CUstream stream, void **object)
{
    (void)context;
    struct fgv_stream *record;
    CUresult result = fgv_stream_find(stream, &record);
    if (result == CUDA_SUCCESS) {
        *object = record;
    }
    return result;
}

static CUresult stream_object_id(CUcontext context, void *object, uint64_t *id)
{
    (void)context;
    *id = ((const struct fgv_stream *)object)->id;
    return CUDA_SUCCESS;
}

static CUresult module_functions(CUmodule module, fgv_handshake_function_callback callback, void *user)
{
    unsigned int nr = 0;
    CUresult result = cuModuleGetFunctionCount(&nr, module);
    CUfunction *functions = result == CUDA_SUCCESS ? calloc(nr + 1, sizeof(CUfunction)) : NULL;
    if (!functions) {
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    result = cuModuleEnumerateFunctions(functions, nr, module);
    const char *name;
    for (unsigned int i = 0; i < nr && result == CUDA_SUCCESS; i++) {
        result = cuFuncGetName(&name, functions[i]);
        if (result == CUDA_SUCCESS && callback(user, functions[i], name) != 0) {
            break;
        }
    }
    free(functions);
    return result;
}

static void tool_refused(void)
{
    fgv_log_cause(FGV_CAUSE_TOOL,
                  "a debugger or profiler sees nothing of the device, which is remote; FAIRGV_TRACE=FILE "
                  "and fairgv-run --trace FILE.json.gz show calls and kernels over time");
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
    .module_functions = module_functions,
    .tool_refused = tool_refused,
    .table_shown = fgv_trace_table,
};

__attribute__((constructor)) static void start(void)
{
    fgv_handshake_set_ops(&ops);
}

CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
    CUresult result = fgv_handshake_table(ppExportTable, pExportTableId);
    if (result != CUDA_ERROR_INVALID_VALUE) {
        fgv_trace_table_asked(pExportTableId, result);
    }
    return result;
}
