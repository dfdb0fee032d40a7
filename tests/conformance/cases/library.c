/* Libraries and their kernels: modules without a context. */
#include <unistd.h>

#include "case.h"

static CUlibrary loaded(void)
{
    CUlibrary library = NULL;

    MUST(cuLibraryLoadData, &library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0);
    return library;
}

CASE(library_load_and_unload)
{
    CUlibrary library = NULL;
    CUkernel kernel = NULL;

    DO(cuLibraryLoadData, &library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0);
    DO(cuLibraryGetKernel, &kernel, library, "fill");
    DO(cuLibraryUnload, library);
    DO(cuLibraryLoadData, &library, "no image", NULL, NULL, 0, NULL, NULL, 0);
    DO(cuLibraryLoadData, &library, NULL, NULL, NULL, 0, NULL, NULL, 0);
    DO(cuLibraryLoadData, NULL, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0);
}

ALONE(destroyed_library)
{
    CUlibrary library = loaded();
    CUkernel kernel = NULL;

    MUST(cuLibraryUnload, library);
    DO(cuLibraryGetKernel, &kernel, library, "fill");
    DO(cuLibraryUnload, library);
}

CASE(library_load_file)
{
    static const char small_ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry small() { ret; }\n";
    char path[] = "/tmp/fairgv-conformance-XXXXXX";
    int file = mkstemp(path);
    CUlibrary library = NULL;

    if (file < 0 || write(file, small_ptx, sizeof(small_ptx)) != sizeof(small_ptx)) {
        end_case("no temporary file");
    }
    close(file);
    say("load", CU(cuLibraryLoadFromFile)(&library, path, NULL, NULL, 0, NULL, NULL, 0));
    unlink(path);
    DO(cuLibraryUnload, library);
    DO(cuLibraryLoadFromFile, &library, "/no/such/file", NULL, NULL, 0, NULL, NULL, 0);
}

CASE(library_options)
{
    CUlibraryOption options[] = {CU_LIBRARY_BINARY_IS_PRESERVED};
    void *values[] = {(void *)1};
    CUlibraryOption unknown[] = {(CUlibraryOption)77};
    CUlibrary library = NULL;

    DO(cuLibraryLoadData, &library, kernels_ptx, NULL, NULL, 0, options, values, 1);
    DO(cuLibraryUnload, library);
    DO(cuLibraryLoadData, &library, kernels_ptx, NULL, NULL, 0, unknown, values, 1);
    DO(cuLibraryLoadData, &library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 1);
}

CASE(library_kernels)
{
    CUlibrary library = loaded(), owner = NULL;
    CUkernel kernel = NULL, again = NULL;
    const char *name = NULL;

    DO(cuLibraryGetKernel, &kernel, library, "fill");
    DO(cuLibraryGetKernel, &again, library, "fill");
    say_number("the same", kernel == again);
    DO(cuKernelGetName, &name, kernel);
    say_text("name", name ? name : "none");
    DO(cuKernelGetLibrary, &owner, kernel);
    say_number("its library", owner == library);
    DO(cuLibraryGetKernel, &kernel, library, "no_such_kernel");
    DO(cuLibraryGetKernel, &kernel, library, NULL);
    DO(cuLibraryGetKernel, NULL, library, "fill");
    DO(cuLibraryUnload, library);
}

CASE(library_enumerate_kernels)
{
    CUlibrary library = loaded();
    CUkernel kernels[64] = {NULL};
    unsigned int count = 0;

    DO(cuLibraryGetKernelCount, &count, library);
    say_number("count", count);
    DO(cuLibraryEnumerateKernels, kernels, count, library);
    for (unsigned int i = 0; i < count && i < 64; i++) {
        const char *name = NULL;

        CU(cuKernelGetName)(&name, kernels[i]);
        say_text(text("kernel %u", i), name ? name : "none");
    }
    DO(cuLibraryEnumerateKernels, kernels, 2, library);
    DO(cuLibraryEnumerateKernels, NULL, 2, library);
    MUST(cuLibraryUnload, library);
}

CASE(library_kernel_launched)
{
    CUlibrary library = loaded();
    CUdeviceptr memory = device_bytes(4096, 1);
    CUfunction function = NULL;
    CUkernel kernel = NULL;
    CUmodule module = NULL;
    void *parameters[] = {&memory, &(unsigned int){3}, &(unsigned int){1024}};

    MUST(cuLibraryGetKernel, &kernel, library, "fill");
    DO(cuLaunchKernel, (CUfunction)kernel, 8, 1, 1, 128, 1, 1, 0, NULL, parameters, NULL);
    say_device_bytes("as a kernel", memory, 4096);
    DO(cuKernelGetFunction, &function, kernel);
    parameters[1] = &(unsigned int){4};
    DO(cuLaunchKernel, function, 8, 1, 1, 128, 1, 1, 0, NULL, parameters, NULL);
    say_device_bytes("as a function", memory, 4096);
    DO(cuFuncGetModule, &module, function);
    DO(cuModuleUnload, module);
    MUST(cuLibraryUnload, library);
}

CASE(library_module_and_globals)
{
    CUlibrary library = loaded();
    CUmodule module = NULL, again = NULL;
    CUdeviceptr counter = 0, from_module = 0;
    size_t size = 0;

    DO(cuLibraryGetModule, &module, library);
    DO(cuLibraryGetModule, &again, library);
    say_number("the same", module == again);
    DO(cuLibraryGetGlobal, &counter, &size, library, "counter");
    say_number("size", (long long)size);
    say_device_bytes("counter", counter, 4);
    DO(cuModuleGetGlobal, &from_module, &size, module, "counter");
    say_number("the same place", counter == from_module);
    DO(cuLibraryGetGlobal, &counter, &size, library, "no_such_global");
    DO(cuLibraryGetManaged, &counter, &size, library, "counter");
    DO(cuLibraryGetUnifiedFunction, &(void *){NULL}, library, "fill");
    MUST(cuLibraryUnload, library);
}

CASE(library_kernel_attributes)
{
    CUlibrary library = loaded();
    CUkernel kernel = NULL;
    size_t offset = 0, size = 0;
    int value = -77;

    MUST(cuLibraryGetKernel, &kernel, library, "reverse_static");
    for (int attribute = 0; attribute < 18; attribute++) {
        value = -77;
        say(text("attribute %d", attribute),
            CU(cuKernelGetAttribute)(&value, (CUfunction_attribute)attribute, kernel, 0));
        if (attribute != CU_FUNC_ATTRIBUTE_NUM_REGS) {
            say_number(text("attribute %d is", attribute), value);
        }
    }
    DO(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50000, kernel, 0);
    DO(cuKernelGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, 0);
    say_number("dynamic", value);
    DO(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_NUM_REGS, 5, kernel, 0);
    DO(cuKernelSetCacheConfig, kernel, CU_FUNC_CACHE_PREFER_L1, 0);
    DO(cuKernelGetParamInfo, kernel, 0, &offset, &size);
    printf("parameter: %zu %zu\n", offset, size);
    DO(cuKernelGetParamInfo, kernel, 1, &offset, &size);
    MUST(cuLibraryUnload, library);
}

ALONE(library_without_a_context)
{
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUfunction function = NULL;
    unsigned int count = 0;
    int value = -77;

    MUST(cuCtxSetCurrent, NULL);
    DO(cuLibraryLoadData, &library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0);
    DO(cuLibraryGetKernelCount, &count, library);
    say_number("count", count);
    DO(cuLibraryGetKernel, &kernel, library, "fill");
    DO(cuKernelGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0);
    say_number("threads", value);
    DO(cuKernelGetFunction, &function, kernel);
    DO(cuLibraryGetModule, &(CUmodule){NULL}, library);
    DO(cuLibraryUnload, library);
}

CASE(library_in_two_contexts)
{
    CUresult (*create)(CUcontext *, unsigned int, CUdevice) = symbol_find("cuCtxCreate_v2");
    CUlibrary library = loaded();
    CUdeviceptr here = 0, there = 0;
    CUcontext own = NULL;
    size_t size = 0;

    MUST(cuLibraryGetGlobal, &here, &size, library, "counter");
    MUST(cuMemsetD32, here, 55, 1);
    must("context", create(&own, 0, 0));
    DO(cuLibraryGetGlobal, &there, &size, library, "counter");
    say_number("another place", here != there);
    say_device_bytes("fresh", there, 4);
    MUST(cuCtxDestroy, own);
    say_device_bytes("set before", here, 4);
    MUST(cuLibraryUnload, library);
}

CASE(library_load_with_options)
{
    char errors[2000] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE};
    void *values[] = {errors, (void *)sizeof(errors), (void *)1};
    CUjit_option unknown[] = {(CUjit_option)12345};
    CUlibrary library = NULL;

    DO(cuLibraryLoadData, &library, kernels_ptx, options, values, 3, NULL, NULL, 0);
    say_number("no errors", strlen(errors));
    values[1] = (void *)sizeof(errors);
    DO(cuLibraryLoadData, &library, ".version 7.0\n.target sm_75\n.address_size 64\nnonsense\n", options, values, 3,
       NULL, NULL, 0);
    say_number("there are words on the error", strlen(errors) > 0);
    say_number("their size is given back", (size_t)values[1] > 0 && (size_t)values[1] <= sizeof(errors));
    DO(cuLibraryLoadData, &library, kernels_ptx, unknown, values, 1, NULL, NULL, 0);
    DO(cuLibraryLoadData, &library, kernels_ptx, NULL, values, 1, NULL, NULL, 0);
}
