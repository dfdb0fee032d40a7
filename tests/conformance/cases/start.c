/* Before and around cuInit, versions, names of errors, and how calls are found. */
#include <dlfcn.h>

#include "case.h"
#include "names.h"

/* Of cudaProfiler.h, which does not come with cuda.h everywhere. */
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);

BARE(start_nothing_before_init)
{
    CUcontext context = NULL;
    CUdeviceptr memory = 0;
    CUdevice device = 0;
    CUstream stream = NULL;
    CUmodule module = NULL;
    int number = 0;

    DO(cuDeviceGetCount, &number);
    DO(cuDeviceGet, &device, 0);
    DO(cuDeviceGetAttribute, &number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0);
    DO(cuDevicePrimaryCtxRetain, &context, 0);
    DO(cuCtxGetCurrent, &context);
    DO(cuCtxSetCurrent, NULL);
    DO(cuCtxSynchronize);
    DO(cuMemAlloc, &memory, 16);
    DO(cuMemFree, 0);
    DO(cuStreamCreate, &stream, 0);
    DO(cuStreamSynchronize, NULL);
    DO(cuModuleLoadData, &module, kernels_ptx);
    DO(cuMemcpyHtoD, 0, NULL, 0);
    DO(cuDriverGetVersion, &number);
    say_number("driver version known", number >= 12000);
}

BARE(start_init)
{
    int count = -1;

    DO(cuInit, 1);
    DO(cuDeviceGetCount, &count);
    DO(cuInit, 0);
    DO(cuInit, 0);
    DO(cuInit, 7);
    DO(cuDeviceGetCount, &count);
    say_number("devices", count);
}

BARE(start_no_context_after_init)
{
    CUcontext context = (CUcontext)1;
    CUdeviceptr memory = 0;
    CUstream stream = NULL;
    CUevent event = NULL;
    CUmodule module = NULL;
    CUdevice device = 0;
    size_t size = 0;
    unsigned int flags = 0;
    CUfunc_cache cache = 0;

    MUST(cuInit, 0);
    DO(cuCtxGetCurrent, &context);
    say_number("there is none", !context);
    DO(cuCtxGetDevice, &device);
    DO(cuCtxSynchronize);
    DO(cuCtxGetFlags, &flags);
    DO(cuCtxGetLimit, &size, CU_LIMIT_STACK_SIZE);
    DO(cuCtxGetCacheConfig, &cache);
    DO(cuCtxPopCurrent, &context);
    DO(cuMemAlloc, &memory, 16);
    DO(cuMemFree, 4096);
    DO(cuMemGetInfo, &size, &size);
    DO(cuStreamCreate, &stream, 0);
    DO(cuEventCreate, &event, 0);
    DO(cuModuleLoadData, &module, kernels_ptx);
    DO(cuMemsetD8, 4096, 0, 1);
    DO(cuLaunchKernel, NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

CASE(start_driver_version)
{
    int version = 0;

    DO(cuDriverGetVersion, &version);
    say_number("at least 12.0", version >= 12000);
    DO(cuDriverGetVersion, NULL);
}

CASE(start_error_names)
{
    for (int error = 0; error < 1000; error++) {
        const char *name = NULL, *words = NULL;
        CUresult named = CU(cuGetErrorName)((CUresult)error, &name);
        CUresult worded = CU(cuGetErrorString)((CUresult)error, &words);

        if (named == CUDA_SUCCESS || worded == CUDA_SUCCESS || error == 500) {
            printf("error %d: %s, %s\n", error, name ? name : "no name", words ? words : "no words");
        }
    }
    DO(cuGetErrorName, (CUresult)12345, &(const char *){NULL});
    DO(cuGetErrorName, (CUresult)-1, &(const char *){NULL});
    DO(cuGetErrorName, CUDA_SUCCESS, NULL);
    DO(cuGetErrorString, CUDA_SUCCESS, NULL);
}

static const char *const table_names[] = {TABLE_NAMES};
static const char *const table_symbols[] = {TABLE_SYMBOLS};
static const char *const other_names[] = {OTHER_NAMES};

static void find_at(const char *name, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status = 77;
    void *found = (void *)1;
    CUresult result = CU(cuGetProcAddress)(name, &found, version, flags, &status);

    printf("%s at %d, %s: %s, status %d, %s\n", name, version, flags == 2 ? "per thread" : "legacy",
           result_name(result), (int)status, found ? "found" : "not found");
}

static void find_at_all(cuuint64_t flags)
{
    static const int versions[] = {2000, 3020, 4000, 6050, 7000, 9020, 10000, 11000, 11030, 11040, 12000, 12040, 13000};

    for (size_t i = 0; i < sizeof(table_names) / sizeof(table_names[0]); i++) {
        for (size_t v = 0; v < sizeof(versions) / sizeof(versions[0]); v++) {
            find_at(table_names[i], versions[v], flags);
        }
    }
}

CASE(find_calls_by_version)
{
    find_at_all(CU_GET_PROC_ADDRESS_DEFAULT);
}

CASE(find_calls_by_version_per_thread)
{
    find_at_all(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
}

CASE(find_calls_of_other_families)
{
    for (size_t i = 0; i < sizeof(other_names) / sizeof(other_names[0]); i++) {
        find_at(other_names[i], 13000, CU_GET_PROC_ADDRESS_DEFAULT);
    }
}

CASE(find_calls_wrongly)
{
    CUdriverProcAddressQueryResult status = 77;
    void *found = (void *)1;

    DO(cuGetProcAddress, "cuNoSuchCall", &found, 13000, 0, &status);
    say_number("status", status);
    say_number("found", found != NULL);
    DO(cuGetProcAddress, "cuNoSuchCall", &found, 13000, 0, NULL);
    DO(cuGetProcAddress, "", &found, 13000, 0, &status);
    DO(cuGetProcAddress, NULL, &found, 13000, 0, &status);
    DO(cuGetProcAddress, "cuInit", NULL, 13000, 0, &status);
    DO(cuGetProcAddress, "cuInit", &found, 13000, 3, &status);
    DO(cuGetProcAddress, "cuInit", &found, 13000, 4, &status);
    DO(cuGetProcAddress, "cuInit", &found, 1000, 0, &status);
    say_number("status of an old version", status);
    DO(cuGetProcAddress, "cuMemAlloc_v2", &found, 13000, 0, &status);
    say_number("status of a name with its version", status);
    DO(cuGetProcAddress, "cuLaunchKernel_ptsz", &found, 13000, 0, &status);
    say_number("status of a twin's name", status);
}

CASE(find_calls_and_call_them)
{
    CUresult (*init)(unsigned int) = NULL;
    CUresult (*count_of)(int *) = NULL;
    CUdriverProcAddressQueryResult status;
    int count = 0;

    DO(cuGetProcAddress, "cuInit", (void **)&init, 12000, 0, &status);
    say("called", init(0));
    DO(cuGetProcAddress, "cuDeviceGetCount", (void **)&count_of, 12000, 0, &status);
    say("called", count_of(&count));
    say_number("devices", count);
}

CASE(find_symbols_with_the_loader)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    for (size_t i = 0; i < sizeof(table_symbols) / sizeof(table_symbols[0]); i++) {
        printf("%s: %s\n", table_symbols[i], dlsym(library, table_symbols[i]) ? "found" : "not found");
    }
    say_number("a name that is none", dlsym(library, "cuNoSuchCall") != NULL);
    dlclose(library);
}

CASE(start_export_tables)
{
    static const CUuuid none = {"no such table"};
    const void *found = NULL;

    DO(cuGetExportTable, &found, &none);
    DO(cuGetExportTable, NULL, &none);
    DO(cuGetExportTable, &found, NULL);
}

CASE(start_profiler)
{
    DO(cuProfilerStart);
    DO(cuProfilerStop);
    DO(cuProfilerStop);
}
