/* Devices and errors through the runtime. */
#include "runtime.cuh"

static __global__ void store_at(unsigned long long address)
{
    *reinterpret_cast<volatile unsigned int *>(address) = 1;
}

static __global__ void empty() {}

CASE(runtime_devices)
{
    int count = -1, device = -1;
    DO(cudaGetDeviceCount(&count));
    say_number("count", count);
    DO(cudaGetDevice(&device));
    say_number("device", device);
    DO(cudaSetDevice(0));
    DO(cudaSetDevice(99));
    DO(cudaSetDevice(-1));
    DO(cudaGetLastError());
    DO(cudaGetDevice(nullptr));
}

CASE(runtime_versions)
{
    int runtime = 0, driver = 0;
    DO(cudaRuntimeGetVersion(&runtime));
    say_number("runtime", runtime);
    DO(cudaDriverGetVersion(&driver));
    say_number("driver is at least 12.0", driver >= 12000);
}

CASE(runtime_properties)
{
    cudaDeviceProp properties;
    memset(&properties, 0, sizeof(properties));
    DO(cudaGetDeviceProperties(&properties, 0));
    printf("name: %s\n", properties.name);
    printf("limits: %d %d %d %d\n", properties.maxThreadsPerBlock, properties.maxThreadsDim[0],
           properties.maxThreadsDim[2], properties.maxGridSize[1]);
    printf("memory: %zu %zu %zu\n", properties.sharedMemPerBlock, properties.totalConstMem,
           properties.sharedMemPerBlockOptin);
    printf("processors: %d %d %d\n", properties.multiProcessorCount, properties.maxThreadsPerMultiProcessor,
           properties.warpSize);
    printf("capability: %d.%d\n", properties.major, properties.minor);
    DO(cudaGetDeviceProperties(&properties, 99));
}

CASE(runtime_attributes)
{
    for (int attribute = 1; attribute < 146; attribute++) {
        int value = -77;
        cudaError_t result = cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(attribute), 0);
        printf("attribute %d: %s %d\n", attribute, cudaGetErrorName(result), value);
    }
    cudaGetLastError();
}

CASE(runtime_flags_and_limits)
{
    unsigned int flags = 99;
    size_t value = 0;
    int least = 99, greatest = 99;
    DO(cudaGetDeviceFlags(&flags));
    say_number("flags", flags);
    DO(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    DO(cudaGetDeviceFlags(&flags));
    say_number("flags", flags);
    DO(cudaSetDeviceFlags(0x1000));
    DO(cudaDeviceGetLimit(&value, cudaLimitStackSize));
    say_number("stack", value);
    DO(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
    DO(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    printf("priorities: %d %d\n", least, greatest);
    DO(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
    DO(cudaSetDeviceFlags(cudaDeviceScheduleAuto));
}

CASE(runtime_reset)
{
    unsigned int *words = device_words(100, 0);
    DO(cudaDeviceReset());
    DO(cudaFree(words));
    DO(cudaGetLastError());
    words = device_words(100, 7);
    say_device_bytes("works again", words, 400);
}

CASE(runtime_last_error)
{
    DO(cudaGetLastError());
    DO(cudaSetDevice(99));
    DO(cudaPeekAtLastError());
    DO(cudaPeekAtLastError());
    DO(cudaGetLastError());
    DO(cudaGetLastError());
    empty<<<1, 5000>>>();
    DO(cudaMalloc(nullptr, 5));
    DO(cudaGetLastError());
    DO(cudaStreamQuery(0));
    DO(cudaGetLastError());
}

ALONE(runtime_fault)
{
    void *memory = nullptr;
    LAUNCH(store_at<<<1, 1>>>(0x10));
    DO(cudaDeviceSynchronize());
    DO(cudaGetLastError());
    DO(cudaGetLastError());
    DO(cudaMalloc(&memory, 16));
    LAUNCH(empty<<<1, 1>>>());
    DO(cudaStreamSynchronize(0));
    DO(cudaDeviceReset());
    DO(cudaMalloc(&memory, 16));
}

BARE(runtime_visible_devices_none)
{
    int count = -1;
    void *memory = nullptr;
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    DO(cudaGetDeviceCount(&count));
    say_number("count", count);
    DO(cudaMalloc(&memory, 16));
    LAUNCH(empty<<<1, 1>>>());
}

ALONE(runtime_exit_with_work_in_flight)
{
    for (int i = 0; i < 100; i++) {
        empty<<<100, 100>>>();
    }
    exit(7);
}
