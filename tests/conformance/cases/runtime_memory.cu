/* Memory, copies and symbols through the runtime. */
#include "runtime.cuh"

__device__ unsigned int symbol[16] = {1, 2, 3};
__constant__ unsigned int constant[8] = {9, 8, 7};

static __global__ void use_symbols(unsigned int *out)
{
    out[threadIdx.x] = symbol[threadIdx.x] * 100 + constant[threadIdx.x % 8];
}

CASE(runtime_malloc_and_free)
{
    void *memory = nullptr;
    DO(cudaMalloc(&memory, 1000));
    DO(cudaFree(memory));
    DO(cudaFree(memory));
    DO(cudaFree(nullptr));
    DO(cudaMalloc(&memory, 0));
    say_number("null for 0 bytes", memory == nullptr);
    DO(cudaMalloc(nullptr, 10));
    DO(cudaMalloc(&memory, static_cast<size_t>(1) << 50));
    DO(cudaGetLastError());
    DO(cudaGetLastError());
}

CASE(runtime_copies)
{
    unsigned int *words = device_words(1000, 5), *other = device_words(1000, 0), host[1000];
    DO(cudaMemcpy(host, words, sizeof(host), cudaMemcpyDeviceToHost));
    say_bytes("host", host, sizeof(host));
    DO(cudaMemcpy(other, words, 2000, cudaMemcpyDeviceToDevice));
    DO(cudaMemcpy(other + 600, host, 100, cudaMemcpyDefault));
    say_device_bytes("other", other, 4000);
    DO(cudaMemcpy(host, host + 500, 100, cudaMemcpyHostToHost));
    DO(cudaMemcpy(host, words, 100, static_cast<cudaMemcpyKind>(9)));
    DO(cudaMemcpy(host, words, 4001, cudaMemcpyDeviceToHost));
    DO(cudaMemcpy(nullptr, words, 16, cudaMemcpyDeviceToHost));
    DO(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDeviceToHost));
}

CASE(runtime_copies_of_rows)
{
    unsigned int host[10][20];
    char *memory = nullptr;
    size_t pitch = 0;
    for (int i = 0; i < 200; i++) {
        host[i / 20][i % 20] = i;
    }
    DO(cudaMallocPitch(&memory, &pitch, 80, 10));
    say_number("pitch", pitch);
    DO(cudaMemset2D(memory, pitch, 7, 80, 10));
    DO(cudaMemcpy2D(memory, pitch, host, 80, 60, 9, cudaMemcpyHostToDevice));
    memset(host, 0, sizeof(host));
    DO(cudaMemcpy2D(host, 80, memory, pitch, 80, 10, cudaMemcpyDeviceToHost));
    say_bytes("host", host, sizeof(host));
    DO(cudaMemcpy2D(host, 40, memory, pitch, 80, 10, cudaMemcpyDeviceToHost));
}

CASE(runtime_3d)
{
    cudaPitchedPtr box = {};
    cudaExtent extent = make_cudaExtent(40, 5, 3);
    DO(cudaMalloc3D(&box, extent));
    say_number("pitch", box.pitch);
    DO(cudaMemset3D(box, 3, extent));
    cudaMemcpy3DParms copy = {};
    char host[600] = {};
    copy.srcPtr = box;
    copy.dstPtr = make_cudaPitchedPtr(host, 40, 40, 5);
    copy.extent = extent;
    copy.kind = cudaMemcpyDeviceToHost;
    DO(cudaMemcpy3D(&copy));
    say_bytes("host", host, sizeof(host));
}

CASE(runtime_sets)
{
    unsigned int *words = device_words(1000, 5);
    DO(cudaMemset(words, 0x55, 1000));
    DO(cudaMemsetAsync(words + 500, 1, 4, 0));
    DO(cudaDeviceSynchronize());
    say_device_bytes("set", words, 4000);
    DO(cudaMemset(words, 0, 4001));
    DO(cudaDeviceSynchronize());
    DO(cudaGetLastError());
}

CASE(runtime_symbols)
{
    unsigned int values[16] = {}, *out = device_words(16, 0);
    void *address = nullptr;
    size_t size = 0;
    DO(cudaMemcpyFromSymbol(values, symbol, sizeof(symbol)));
    say_bytes("symbol", values, sizeof(values));
    for (int i = 0; i < 16; i++) {
        values[i] = i * 3;
    }
    DO(cudaMemcpyToSymbol(symbol, values, sizeof(symbol)));
    DO(cudaMemcpyToSymbol(constant, values, 8, 16));
    LAUNCH(use_symbols<<<1, 16>>>(out));
    say_device_bytes("used", out, 64);
    DO(cudaGetSymbolAddress(&address, symbol));
    DO(cudaGetSymbolSize(&size, symbol));
    say_number("size", size);
    DO(cudaMemcpyToSymbol(symbol, values, sizeof(symbol) + 1));
}

CASE(runtime_host_memory)
{
    unsigned int *pinned = nullptr, flags = 99, *device = nullptr, *words = device_words(1000, 5);
    DO(cudaMallocHost(&pinned, 4000));
    DO(cudaHostGetFlags(&flags, pinned));
    say_number("flags", flags);
    DO(cudaHostGetDevicePointer(&device, pinned, 0));
    say_number("the same address", device == pinned);
    DO(cudaMemcpyAsync(pinned, words, 4000, cudaMemcpyDeviceToHost, 0));
    DO(cudaStreamSynchronize(0));
    say_bytes("copied", pinned, 4000);
    DO(cudaFreeHost(pinned));
    DO(cudaFreeHost(pinned));
    DO(cudaHostAlloc(&pinned, 4000, cudaHostAllocMapped | cudaHostAllocWriteCombined));
    DO(cudaFreeHost(pinned));
    DO(cudaHostAlloc(&pinned, 4000, 0x100));
    static char own[8192];
    DO(cudaHostRegister(own, sizeof(own), cudaHostRegisterDefault));
    DO(cudaHostRegister(own, sizeof(own), cudaHostRegisterDefault));
    DO(cudaHostUnregister(own));
    DO(cudaHostUnregister(own));
}

CASE(runtime_pointer_attributes)
{
    cudaPointerAttributes attributes = {};
    unsigned int *pinned = nullptr, *words = device_words(10, 0), local = 0;
    cudaMallocHost(&pinned, 40);
    for (unsigned int *pointer : {words, pinned, &local}) {
        DO(cudaPointerGetAttributes(&attributes, pointer));
        printf("type and device: %d %d\n", attributes.type, attributes.device);
    }
}

CASE(runtime_memory_info)
{
    size_t free = 0, total = 0;
    DO(cudaMemGetInfo(&free, &total));
    say_number("free is at most total", free <= total && total > 0);
}

CASE(runtime_managed)
{
    unsigned int *memory = nullptr;
    if (DO(cudaMallocManaged(&memory, 4096)) != cudaSuccess) {
        return;
    }
    DO(cudaMemset(memory, 3, 4096));
    DO(cudaDeviceSynchronize());
    say_bytes("set", memory, 4096);
    DO(cudaFree(memory));
}

CASE(runtime_pool)
{
    void *memory = nullptr;
    if (DO(cudaMallocAsync(&memory, 4096, 0)) != cudaSuccess) {
        return;
    }
    DO(cudaMemsetAsync(memory, 3, 4096, 0));
    DO(cudaStreamSynchronize(0));
    say_device_bytes("set", memory, 4096);
    DO(cudaFreeAsync(memory, 0));
    DO(cudaStreamSynchronize(0));
}

CASE(runtime_array)
{
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array = nullptr;
    DO(cudaMallocArray(&array, &format, 16, 16));
    if (array) {
        DO(cudaFreeArray(array));
    }
}
