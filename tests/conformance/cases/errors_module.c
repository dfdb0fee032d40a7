/* The table of errors: modules, libraries, functions, launches, occupancy. */
#include "case.h"

CASE(errors_of_modules)
{
    CUmodule module = module_of_kernels(), other = NULL;
    CUfunction function = NULL;
    CUdeviceptr address = 0;
    unsigned int count = 0;
    size_t bytes = 0;

    ROW("no image", cuModuleLoadData, &other, NULL);
    ROW("no result", cuModuleLoadData, NULL, kernels_ptx);
    ROW("an empty image", cuModuleLoadData, &other, "");
    ROW("no image", cuModuleLoadDataEx, &other, NULL, 0, NULL, NULL);
    ROW("no image", cuModuleLoadFatBinary, &other, NULL);
    ROW("no path", cuModuleLoad, &other, NULL);
    ROW("no such file", cuModuleLoad, &other, "/no/such/file");
    ROW("no result", cuModuleLoad, NULL, "/no/such/file");
    ROW("no module", cuModuleUnload, NULL);
    ROW("no result", cuModuleGetFunction, NULL, module, "fill");
    ROW("no module", cuModuleGetFunction, &function, NULL, "fill");
    ROW("no name", cuModuleGetFunction, &function, module, NULL);
    ROW("no such name", cuModuleGetFunction, &function, module, "nothing");
    ROW("no module", cuModuleGetGlobal, &address, &bytes, NULL, "counter");
    ROW("no name", cuModuleGetGlobal, &address, &bytes, module, NULL);
    ROW("no such name", cuModuleGetGlobal, &address, &bytes, module, "nothing");
    ROW("no result", cuModuleGetFunctionCount, NULL, module);
    ROW("no module", cuModuleGetFunctionCount, &count, NULL);
    ROW("no place", cuModuleEnumerateFunctions, NULL, 1, module);
    ROW("no module", cuModuleEnumerateFunctions, &function, 1, NULL);
    ROW("no result", cuModuleGetLoadingMode, NULL);
}

CASE(errors_of_libraries)
{
    CUlibrary library = NULL, owner = NULL;
    CUkernel kernel = NULL;
    CUfunction function = NULL;
    CUmodule module = NULL;
    CUdeviceptr address = 0;
    const char *name = NULL;
    unsigned int count = 0;
    size_t bytes = 0, offset = 0;
    int value = 0;

    MUST(cuLibraryLoadData, &library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0);
    MUST(cuLibraryGetKernel, &kernel, library, "fill");
    ROW("no library", cuLibraryUnload, NULL);
    ROW("no result", cuLibraryGetKernel, NULL, library, "fill");
    ROW("no library", cuLibraryGetKernel, &kernel, NULL, "fill");
    ROW("no name", cuLibraryGetKernel, &kernel, library, NULL);
    ROW("no such name", cuLibraryGetKernel, &kernel, library, "nothing");
    ROW("no library", cuLibraryGetModule, &module, NULL);
    ROW("no result", cuLibraryGetModule, NULL, library);
    ROW("no library", cuLibraryGetGlobal, &address, &bytes, NULL, "counter");
    ROW("no such name", cuLibraryGetGlobal, &address, &bytes, library, "nothing");
    ROW("no result", cuLibraryGetKernelCount, NULL, library);
    ROW("no library", cuLibraryGetKernelCount, &count, NULL);
    ROW("no place", cuLibraryEnumerateKernels, NULL, 1, library);
    ROW("no path", cuLibraryLoadFromFile, &library, NULL, NULL, NULL, 0, NULL, NULL, 0);
    MUST(cuLibraryGetKernel, &kernel, library, "fill");
    ROW("no kernel", cuKernelGetFunction, &function, NULL);
    ROW("no result", cuKernelGetFunction, NULL, kernel);
    ROW("no kernel", cuKernelGetName, &name, NULL);
    ROW("no result", cuKernelGetName, NULL, kernel);
    ROW("no kernel", cuKernelGetLibrary, &owner, NULL);
    ROW("no kernel", cuKernelGetAttribute, &value, CU_FUNC_ATTRIBUTE_NUM_REGS, NULL, 0);
    ROW("no result", cuKernelGetAttribute, NULL, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 0);
    ROW("attribute 99", cuKernelGetAttribute, &value, (CUfunction_attribute)99, kernel, 0);
    ROW("device 1000", cuKernelGetAttribute, &value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 1000);
    ROW("attribute 99", cuKernelSetAttribute, (CUfunction_attribute)99, 1, kernel, 0);
    ROW("device 1000", cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1, kernel, 1000);
    ROW("config 99", cuKernelSetCacheConfig, kernel, (CUfunc_cache)99, 0);
    ROW("parameter 99", cuKernelGetParamInfo, kernel, 99, &offset, &bytes);
    ROW("no offset", cuKernelGetParamInfo, kernel, 0, NULL, &bytes);
}

CASE(errors_of_functions)
{
    CUfunction function = function_of("fill");
    CUfunctionLoadingState state;
    CUmodule module = NULL;
    const char *name = NULL;
    size_t offset = 0, bytes = 0;
    int value = 0, block = 0;

    ROW("no function", cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_NUM_REGS, NULL);
    ROW("no result", cuFuncGetAttribute, NULL, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
    ROW("attribute 99", cuFuncGetAttribute, &value, (CUfunction_attribute)99, function);
    ROW("attribute -1", cuFuncGetAttribute, &value, (CUfunction_attribute)-1, function);
    ROW("no function", cuFuncSetAttribute, NULL, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1);
    ROW("attribute 99", cuFuncSetAttribute, function, (CUfunction_attribute)99, 1);
    ROW("an attribute that is read only", cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_NUM_REGS, 1);
    ROW("no function", cuFuncSetCacheConfig, NULL, CU_FUNC_CACHE_PREFER_L1);
    ROW("config 99", cuFuncSetCacheConfig, function, (CUfunc_cache)99);
    ROW("config 99", cuFuncSetSharedMemConfig, function, (CUsharedconfig)99);
    ROW("no function", cuFuncGetModule, &module, NULL);
    ROW("no result", cuFuncGetModule, NULL, function);
    ROW("no function", cuFuncGetName, &name, NULL);
    ROW("no result", cuFuncGetName, NULL, function);
    ROW("no function", cuFuncGetParamInfo, NULL, 0, &offset, &bytes);
    ROW("no offset", cuFuncGetParamInfo, function, 0, NULL, &bytes);
    ROW("no size", cuFuncGetParamInfo, function, 0, &offset, NULL);
    ROW("parameter 99", cuFuncGetParamInfo, function, 99, &offset, &bytes);
    ROW("no result", cuFuncIsLoaded, NULL, function);
    ROW("no function", cuFuncIsLoaded, &state, NULL);
    ROW("no function", cuFuncLoad, NULL);
    ROW("no result", cuOccupancyMaxActiveBlocksPerMultiprocessor, NULL, function, 128, 0);
    ROW("no function", cuOccupancyMaxActiveBlocksPerMultiprocessor, &value, NULL, 128, 0);
    ROW("blocks of 0", cuOccupancyMaxActiveBlocksPerMultiprocessor, &value, function, 0, 0);
    ROW("blocks of -1", cuOccupancyMaxActiveBlocksPerMultiprocessor, &value, function, -1, 0);
    ROW("flags 8", cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, &value, function, 128, 0, 8);
    ROW("no grid", cuOccupancyMaxPotentialBlockSize, NULL, &block, function, NULL, 0, 0);
    ROW("no block", cuOccupancyMaxPotentialBlockSize, &value, NULL, function, NULL, 0, 0);
    ROW("no function", cuOccupancyMaxPotentialBlockSize, &value, &block, NULL, NULL, 0, 0);
    ROW("a limit of -1", cuOccupancyMaxPotentialBlockSize, &value, &block, function, NULL, 0, -1);
    ROW("no result", cuOccupancyAvailableDynamicSMemPerBlock, NULL, function, 1, 128);
    ROW("0 blocks", cuOccupancyAvailableDynamicSMemPerBlock, &bytes, function, 0, 128);
    ROW("blocks of 0", cuOccupancyAvailableDynamicSMemPerBlock, &bytes, function, 1, 0);
    ROW("no configuration", cuOccupancyMaxActiveClusters, &value, function, NULL);
    ROW("no configuration", cuOccupancyMaxPotentialClusterSize, &value, function, NULL);
}

CASE(errors_of_launches)
{
    CUfunction function = function_of("empty"), fill = function_of("fill");
    CUdeviceptr out = device_bytes(4096, 1);
    void *parameters[] = {&out, &(unsigned int){1}, &(unsigned int){1024}};
    void *unknown[] = {(void *)77, NULL, CU_LAUNCH_PARAM_END};
    CUlaunchConfig config = {
        .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
    CUlaunchAttribute attribute = {.id = (CUlaunchAttributeID)999};

    ROW("no function", cuLaunchKernel, NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    ROW("a grid of 0", cuLaunchKernel, function, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    ROW("a block of 0", cuLaunchKernel, function, 1, 1, 1, 1, 1, 0, 0, NULL, NULL, NULL);
    ROW("a block of 2048", cuLaunchKernel, function, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL);
    ROW("a block of 1024 times 2", cuLaunchKernel, function, 1, 1, 1, 1024, 2, 1, 0, NULL, NULL, NULL);
    ROW("too high a block", cuLaunchKernel, function, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL);
    ROW("too wide a grid", cuLaunchKernel, function, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    ROW("much shared memory", cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 1 << 20, NULL, NULL, NULL);
    ROW("a little too much shared memory", cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 49153, NULL, NULL, NULL);
    ROW("no parameters", cuLaunchKernel, fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    ROW("an unknown extra", cuLaunchKernel, fill, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, unknown);
    ROW("both kinds of parameters", cuLaunchKernel, fill, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, unknown);
    ROW("no function", cuLaunchCooperativeKernel, NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL);
    ROW("a grid of 0", cuLaunchCooperativeKernel, function, 0, 1, 1, 1, 1, 1, 0, NULL, NULL);
    ROW("more blocks than fit", cuLaunchCooperativeKernel, function, 1 << 20, 1, 1, 1024, 1, 1, 0, NULL, NULL);
    ROW("no configuration", cuLaunchKernelEx, NULL, function, NULL, NULL);
    ROW("no function", cuLaunchKernelEx, &config, NULL, NULL, NULL);
    config.attrs = &attribute;
    config.numAttrs = 1;
    ROW("attribute 999", cuLaunchKernelEx, &config, function, NULL, NULL);
    config.attrs = NULL;
    ROW("a count but no attributes", cuLaunchKernelEx, &config, function, NULL, NULL);
}

ALONE(errors_of_functions_that_are_none)
{
    CUfunction none = (CUfunction)0x123456780;
    CUmodule no_module = (CUmodule)0x123456780;
    CUfunction function = NULL;
    int value = 0;

    ROW("an invented function", cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_NUM_REGS, none);
    ROW("an invented function", cuLaunchKernel, none, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    ROW("an invented function", cuOccupancyMaxActiveBlocksPerMultiprocessor, &value, none, 128, 0);
    ROW("an invented module", cuModuleGetFunction, &function, no_module, "fill");
    ROW("an invented module", cuModuleUnload, no_module);
    ROW("an invented library", cuLibraryUnload, (CUlibrary)0x123456780);
}

ALONE(errors_of_wrong_kinds_of_handles)
{
    CUstream stream = NULL;
    CUevent event = NULL;

    MUST(cuStreamCreate, &stream, 0);
    MUST(cuEventCreate, &event, 0);
    ROW("an event as stream", cuStreamDestroy, (CUstream)event);
    ROW("a stream as event", cuEventDestroy, (CUevent)stream);
    DO(cuStreamDestroy, stream);
    DO(cuEventDestroy, event);
}
