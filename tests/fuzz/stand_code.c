/*
 * Of the stand-in: the device, contexts, code and its launches.
 */
#include "by_hand.h"

#define NR_PARAMETERS 4u
#define NR_CODE       3u
#define SYMBOL_BYTES  64u

/* ---- the device and contexts ---- */

STAND_IN(cuInit, unsigned int flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

STAND_IN(cuDeviceGet, CUdevice *device, int ordinal)
{
    *device = 0;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

STAND_IN(cuDeviceGetAttribute, int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                                         : 1024;
    return CUDA_SUCCESS;
}

STAND_IN(cuMemGetInfo_v2, size_t *free_bytes, size_t *total_bytes)
{
    BEGIN(cuMemGetInfo_v2);
    *free_bytes = *total_bytes = STAND_DEVICE_BYTES;
    return CUDA_SUCCESS;
}

STAND_IN(cuDevicePrimaryCtxRetain, CUcontext *context, CUdevice device)
{
    (void)device;
    BEGIN(cuDevicePrimaryCtxRetain);
    struct stand_object *primary = stand_find(FGV_HANDLE_CONTEXT, 1);
    if (!primary) {
        primary = stand_make(FGV_HANDLE_CONTEXT, NULL);
        primary->value = 1;
    }
    primary->nr_retained++;
    *context = (CUcontext)primary;
    return CUDA_SUCCESS;
}

STAND_IN(cuDevicePrimaryCtxRelease_v2, CUdevice device)
{
    (void)device;
    struct stand_object *primary = stand_find(FGV_HANDLE_CONTEXT, 1);
    const CUresult result = stand_call(STAND_cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease_v2");
    if (!primary) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (result != CUDA_SUCCESS) {
        stand_excuse(primary);
        return result;
    }
    if (--primary->nr_retained == 0) {
        stand_end(primary);
    }
    return CUDA_SUCCESS;
}

STAND_IN(cuCtxCreate_v2, CUcontext *context, unsigned int flags, CUdevice device)
{
    (void)flags;
    (void)device;
    BEGIN(cuCtxCreate_v2);
    stand_current = stand_make(FGV_HANDLE_CONTEXT, NULL);
    *context = (CUcontext)stand_current;
    return CUDA_SUCCESS;
}

STAND_IN(cuCtxSetCurrent, CUcontext context)
{
    stand_need(FGV_HANDLE_CONTEXT, context);
    const CUresult result = stand_call(STAND_cuCtxSetCurrent, "cuCtxSetCurrent");
    if (result != CUDA_SUCCESS && (!stand_current || result != stand_current->fault)) {
        return result;
    }
    stand_current = (struct stand_object *)context;
    return CUDA_SUCCESS;
}

STAND_IN(cuCtxPopCurrent_v2, CUcontext *context)
{
    BEGIN(cuCtxPopCurrent_v2);
    if (context) {
        *context = (CUcontext)stand_current;
    }
    stand_current = NULL;
    return CUDA_SUCCESS;
}

STAND_IN(cuCtxGetCurrent, CUcontext *context)
{
    *context = (CUcontext)stand_current;
    return CUDA_SUCCESS;
}

/* ---- code ---- */

void *stand_below(enum fgv_handle_kind kind, const void *parent, uint64_t number)
{
    struct stand_object *above = (struct stand_object *)(uintptr_t)parent;
    for (struct stand_object *object = above->first; object; object = object->next) {
        if (object->kind == (uint32_t)kind && object->value == number) {
            return object;
        }
    }
    struct stand_object *made = stand_make(kind, above);
    made->value = number;
    return made;
}

static uint64_t name_number(const char *name)
{
    return strlen(name) % NR_CODE;
}

STAND_IN(cuModuleGetFunction, CUfunction *function, CUmodule module, const char *name)
{
    stand_need(FGV_HANDLE_MODULE, module);
    const uint64_t number = name_number(name);
    BEGIN(cuModuleGetFunction);
    *function = stand_below(FGV_HANDLE_FUNCTION, module, number);
    return CUDA_SUCCESS;
}

STAND_IN(cuModuleLoadDataEx, CUmodule *module, const void *image, unsigned int nr_options, CUjit_option *options,
         void **values)
{
    (void)nr_options;
    (void)options;
    (void)values;
    (void)strlen(image);
    BEGIN(cuModuleLoadDataEx);
    *module = (CUmodule)stand_make(FGV_HANDLE_MODULE, NULL);
    return CUDA_SUCCESS;
}

STAND_IN(cuLibraryLoadData, CUlibrary *library, const void *code, CUjit_option *options, void **values,
         unsigned int nr_options, CUlibraryOption *library_options, void **library_values,
         unsigned int nr_library_options)
{
    (void)options;
    (void)values;
    (void)nr_options;
    (void)library_options;
    (void)library_values;
    (void)nr_library_options;
    BEGIN(cuLibraryLoadData);
    struct stand_object *made = stand_make(FGV_HANDLE_LIBRARY, NULL);
    made->bytes = strncmp(code, STAND_VARIANT, strlen(STAND_VARIANT)) == 0;
    made->is_excused = made->bytes != 0; /* the worker's own, which no number leads to */
    *library = (CUlibrary)made;
    return CUDA_SUCCESS;
}

STAND_IN(cuLibraryGetKernel, CUkernel *kernel, CUlibrary library, const char *name)
{
    stand_need(FGV_HANDLE_LIBRARY, library);
    const uint64_t number = name_number(name);
    BEGIN(cuLibraryGetKernel);
    *kernel = stand_below(FGV_HANDLE_KERNEL, library, number);
    return CUDA_SUCCESS;
}

STAND_IN(cuLibraryGetModule, CUmodule *module, CUlibrary library)
{
    stand_need(FGV_HANDLE_LIBRARY, library);
    BEGIN(cuLibraryGetModule);
    *module = stand_below(FGV_HANDLE_MODULE, library, (uint64_t)(uintptr_t)stand_current);
    stand_excuse(*module); /* it goes with the library, whoever knows it */
    return CUDA_SUCCESS;
}

/* Of a library it goes with that, and not before. */
STAND_IN(cuModuleUnload, CUmodule module)
{
    struct stand_object *object = (struct stand_object *)(uintptr_t)module;
    stand_need(FGV_HANDLE_MODULE, module);
    const CUresult result = stand_call(STAND_cuModuleUnload, "cuModuleUnload");
    if (result != CUDA_SUCCESS) {
        stand_excuse(object);
        return result;
    }
    if (!object || object->parent->kind == FGV_HANDLE_LIBRARY) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    stand_end(object);
    return CUDA_SUCCESS;
}

STAND_IN(cuKernelGetFunction, CUfunction *function, CUkernel kernel)
{
    stand_need(FGV_HANDLE_KERNEL, kernel);
    BEGIN(cuKernelGetFunction);
    *function = stand_below(FGV_HANDLE_FUNCTION, kernel, (uint64_t)(uintptr_t)stand_current);
    return CUDA_SUCCESS;
}

STAND_IN(cuModuleEnumerateFunctions, CUfunction *functions, unsigned int nr, CUmodule module)
{
    stand_need(FGV_HANDLE_MODULE, module);
    BEGIN(cuModuleEnumerateFunctions);
    for (unsigned int i = 0; i < nr; i++) {
        functions[i] = i < NR_CODE ? stand_below(FGV_HANDLE_FUNCTION, module, i) : NULL;
    }
    return CUDA_SUCCESS;
}

STAND_IN(cuLibraryEnumerateKernels, CUkernel *kernels, unsigned int nr, CUlibrary library)
{
    stand_need(FGV_HANDLE_LIBRARY, library);
    BEGIN(cuLibraryEnumerateKernels);
    for (unsigned int i = 0; i < nr; i++) {
        kernels[i] = i < NR_CODE ? stand_below(FGV_HANDLE_KERNEL, library, i) : NULL;
    }
    return CUDA_SUCCESS;
}

STAND_IN(cuModuleGetFunctionCount, unsigned int *nr, CUmodule module)
{
    stand_need(FGV_HANDLE_MODULE, module);
    BEGIN(cuModuleGetFunctionCount);
    *nr = NR_CODE;
    return CUDA_SUCCESS;
}

STAND_IN(cuLibraryGetKernelCount, unsigned int *nr, CUlibrary library)
{
    stand_need(FGV_HANDLE_LIBRARY, library);
    BEGIN(cuLibraryGetKernelCount);
    *nr = NR_CODE;
    return CUDA_SUCCESS;
}

STAND_IN(cuFuncGetName, const char **name, CUfunction function)
{
    stand_need(FGV_HANDLE_FUNCTION, function);
    BEGIN(cuFuncGetName);
    *name = "code";
    return CUDA_SUCCESS;
}

STAND_IN(cuKernelGetName, const char **name, CUkernel kernel)
{
    stand_need(FGV_HANDLE_KERNEL, kernel);
    BEGIN(cuKernelGetName);
    *name = "code";
    return CUDA_SUCCESS;
}

static CUresult parameter(const void *code, size_t index, size_t *offset, size_t *bytes)
{
    const struct stand_object *of = ((const struct stand_object *)code)->parent;
    of = of->kind == FGV_HANDLE_KERNEL ? of->parent : of;
    const bool is_variant = of->kind == FGV_HANDLE_LIBRARY && of->bytes != 0;
    if (index >= NR_PARAMETERS + is_variant) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *offset = index * sizeof(uint64_t);
    if (bytes) {
        *bytes = sizeof(uint64_t);
    }
    return CUDA_SUCCESS;
}

STAND_IN(cuFuncGetParamInfo, CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    stand_need(FGV_HANDLE_FUNCTION, function);
    BEGIN(cuFuncGetParamInfo);
    return parameter(function, index, offset, bytes);
}

STAND_IN(cuKernelGetParamInfo, CUkernel kernel, size_t index, size_t *offset, size_t *bytes)
{
    stand_need(FGV_HANDLE_KERNEL, kernel);
    BEGIN(cuKernelGetParamInfo);
    return parameter(kernel, index, offset, bytes);
}

static CUresult variable(CUdeviceptr *address, size_t *bytes, const char *name)
{
    (void)strlen(name);
    if (address) {
        *address = stand_last_address;
    }
    if (bytes) {
        *bytes = SYMBOL_BYTES;
    }
    return CUDA_SUCCESS;
}

STAND_IN(cuModuleGetGlobal_v2, CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
    stand_need(FGV_HANDLE_MODULE, module);
    BEGIN(cuModuleGetGlobal_v2);
    return variable(address, bytes, name);
}

STAND_IN(cuLibraryGetGlobal, CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
    stand_need(FGV_HANDLE_LIBRARY, library);
    BEGIN(cuLibraryGetGlobal);
    return variable(address, bytes, name);
}

static volatile uint8_t reader;

void stand_read(const void *bytes, uint64_t nr)
{
    for (uint64_t i = 0; i < nr; i++) {
        reader = ((const uint8_t *)bytes)[i];
    }
}

/* For as long as it lives the driver has a pointer to the values of its options. */
STAND_IN(cuLinkCreate_v2, unsigned int nr_options, CUjit_option *options, void **values, CUlinkState *link)
{
    (void)options;
    BEGIN(cuLinkCreate_v2);
    struct stand_object *made = stand_make(FGV_HANDLE_LINK, NULL);
    made->value = (uint64_t)(uintptr_t)values;
    made->bytes = nr_options * sizeof(*values);
    *link = (CUlinkState)made;
    return CUDA_SUCCESS;
}

static void read_options(CUlinkState link)
{
    const struct stand_object *object = (const struct stand_object *)link;
    if (object) {
        stand_read((const void *)(uintptr_t)object->value, object->bytes);
    }
}

STAND_IN(cuLinkComplete, CUlinkState link, void **cubin, size_t *bytes)
{
    static uint8_t image[64];
    stand_need(FGV_HANDLE_LINK, link);
    read_options(link);
    BEGIN(cuLinkComplete);
    *cubin = image;
    *bytes = sizeof(image);
    return CUDA_SUCCESS;
}

STAND_IN(cuLinkAddData_v2, CUlinkState link, CUjitInputType type, void *data, size_t bytes, const char *name,
         unsigned int nr_options, CUjit_option *options, void **values)
{
    (void)type;
    (void)nr_options;
    (void)options;
    (void)values;
    stand_need(FGV_HANDLE_LINK, link);
    read_options(link);
    stand_read(data, bytes);
    (void)(name ? strlen(name) : 0);
    BEGIN(cuLinkAddData_v2);
    return CUDA_SUCCESS;
}

STAND_IN(cuLaunchKernel, CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
         unsigned int by, unsigned int bz, unsigned int shared_bytes, CUstream stream, void **parameters, void **extra)
{
    (void)(gx + gy + gz + bx + by + bz + shared_bytes);
    stand_need(FGV_HANDLE_STREAM, stream);
    stand_need(((struct stand_object *)function)->kind == FGV_HANDLE_KERNEL ? FGV_HANDLE_KERNEL : FGV_HANDLE_FUNCTION,
               function);
    for (size_t i = 0; parameters && !extra && i < NR_PARAMETERS; i++) {
        stand_read(parameters[i], sizeof(uint64_t));
    }
    BEGIN(cuLaunchKernel);
    return CUDA_SUCCESS;
}

STAND_IN(cuLaunchKernelEx, const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    stand_need(FGV_HANDLE_STREAM, config->hStream);
    stand_read(config->attrs, config->numAttrs * sizeof(*config->attrs));
    return stand_cuLaunchKernel(function, 0, 0, 0, 0, 0, 0, 0, config->hStream, parameters, extra);
}
