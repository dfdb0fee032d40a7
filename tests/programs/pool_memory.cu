/*
 * Stream-ordered allocation: a training step that frees and allocates the same sizes, the default pool and one of its
 * own, what pools say of themselves, and what is refused.
 */
#include <cstdint>
#include <vector>

#include "check.h"

__global__ void add(float *to, const float *from, float what, int nr)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < nr) {
        to[i] = from[i] + what;
    }
}

static bool refused(cudaError_t result)
{
    cudaGetLastError();
    return result != cudaSuccess;
}

static uint64_t value_of(cudaMemPool_t pool, cudaMemPoolAttr attribute)
{
    uint64_t value = 0;
    CHECK(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

/* Each step allocates two arrays, computes, frees; the result goes through 20 of them. */
static bool steps(cudaStream_t stream, float *state, int nr)
{
    for (int step = 0; step < 20; step++) {
        float *a, *b;
        CHECK(cudaMallocAsync(&a, nr * sizeof(float), stream));
        CHECK(cudaMallocAsync(&b, nr * sizeof(float), stream));
        add<<<(nr + 255) / 256, 256, 0, stream>>>(a, state, 1.0f, nr);
        add<<<(nr + 255) / 256, 256, 0, stream>>>(b, a, 2.0f, nr);
        CHECK(cudaFreeAsync(a, stream));
        add<<<(nr + 255) / 256, 256, 0, stream>>>(state, b, 3.0f, nr);
        CHECK(cudaFreeAsync(b, stream));
    }
    std::vector<float> host(nr);
    CHECK(cudaMemcpyAsync(host.data(), state, nr * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < nr; i++) {
        if (host[i] != host[0]) {
            return false;
        }
    }
    printf("state: %g\n", host[0]);
    return true;
}

int main()
{
    const int nr = 10000;
    int has = 0;
    CHECK(cudaDeviceGetAttribute(&has, cudaDevAttrMemoryPoolsSupported, 0));
    printf("supported: %d\n", has);
    cudaMemPool_t pool, current;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    printf("default is current: %d\n", pool == current);
    cudaStream_t first, second;
    CHECK(cudaStreamCreate(&first));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    float *state;
    void *early; /* of a pool, and before all other memory */
    CHECK(cudaMallocAsync(&early, 4096, first));
    CHECK(cudaMalloc(&state, nr * sizeof(float)));
    CHECK(cudaFreeAsync(early, first));
    CHECK(cudaMemset(state, 0, nr * sizeof(float)));

    bool is_right = steps(first, state, nr);
    printf("used: %llu\n", (unsigned long long)value_of(pool, cudaMemPoolAttrUsedMemCurrent));
    uint64_t threshold = UINT64_MAX;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    printf("threshold is kept: %d\n", value_of(pool, cudaMemPoolAttrReleaseThreshold) == threshold);
    is_right &= steps(first, state, nr);
    is_right &= steps(second, state, nr);
    is_right &= steps(nullptr, state, nr);
    printf("used: %llu\n", (unsigned long long)value_of(pool, cudaMemPoolAttrUsedMemCurrent));
    printf("reserved: %d\n", value_of(pool, cudaMemPoolAttrReservedMemCurrent) > 0);

    /* Memory that is freed is had again in its stream, and no address is given twice. */
    char *a, *b, *c;
    CHECK(cudaMallocAsync(&a, 4096, first));
    CHECK(cudaFreeAsync(a, first));
    printf("freed twice: %d\n", refused(cudaFreeAsync(a, first)));
    CHECK(cudaMallocAsync(&b, 4096, first));
    CHECK(cudaMallocAsync(&c, 4096, first));
    printf("apart: %d\n", b != c);
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, b + 100));
    printf("type: %d\n", (int)attributes.type);
    printf("free inside: %d\n", refused(cudaFreeAsync(b + 16, first)));
    CHECK(cudaFreeAsync(b, first));
    CHECK(cudaFreeAsync(c, second));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemPoolTrimTo(pool, 0));
    printf("used and reserved after a trim: %llu %llu\n",
           (unsigned long long)value_of(pool, cudaMemPoolAttrUsedMemCurrent),
           (unsigned long long)value_of(pool, cudaMemPoolAttrReservedMemCurrent));

    /* The other way of freeing does as well. The driver of an H100 (580) goes on counting such memory as used. */
    CHECK(cudaMallocAsync(&b, 4096, first));
    CHECK(cudaFree(b));
    CHECK(cudaMemPoolTrimTo(pool, 0));
    printf("reserved: %llu\n", (unsigned long long)value_of(pool, cudaMemPoolAttrReservedMemCurrent));

    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, 0};
    cudaMemPool_t own;
    CHECK(cudaMemPoolCreate(&own, &properties));
    CHECK(cudaMallocFromPoolAsync(&a, 1 << 20, own, second));
    CHECK(cudaMemsetAsync(a, 1, 1 << 20, second));
    CHECK(cudaDeviceSetMemPool(0, own));
    CHECK(cudaMallocAsync(&b, 1 << 20, second));
    printf("used of its own: %llu\n", (unsigned long long)value_of(own, cudaMemPoolAttrUsedMemCurrent));
    CHECK(cudaFreeAsync(a, second));
    CHECK(cudaFreeAsync(b, second));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaMemPoolDestroy(own));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    printf("default is current again: %d\n", pool == current);

    cudaMemAccessDesc access = {};
    access.location = {cudaMemLocationTypeDevice, 0};
    access.flags = cudaMemAccessFlagsProtReadWrite;
    CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    cudaMemAccessFlags flags;
    CHECK(cudaMemPoolGetAccess(&flags, pool, &access.location));
    printf("access: %d\n", (int)flags);
    cudaMemPoolPtrExportData exported;
    CHECK(cudaMallocAsync(&a, 4096, first));
    printf("export: %d\n", refused(cudaMemPoolExportPointer(&exported, a)));
    printf("too much: %s\n", cudaGetErrorName(cudaMallocAsync(&b, (size_t)1 << 60, first)));
    printf("nothing: %d\n", refused(cudaFreeAsync((void *)0x1000, first)));
    CHECK(cudaFreeAsync(a, first));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaFree(state));
    return verdict(is_right);
}
