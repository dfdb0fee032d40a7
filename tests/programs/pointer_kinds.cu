/*
 * What memory a pointer points to. The runtime hands the driver variables it has not cleared, so every answer has to
 * fill its whole variable; the stack is soiled first to show one that does not.
 */
#include "check.h"

static __attribute__((noinline)) void soil_stack()
{
    volatile char waste[16384];
    for (size_t i = 0; i < sizeof(waste); i++) {
        waste[i] = (char)0xff;
    }
}

static bool is_kind(const void *pointer, cudaMemoryType wanted)
{
    cudaPointerAttributes attributes;
    soil_stack();
    CHECK(cudaPointerGetAttributes(&attributes, pointer));
    printf("kind %d of %d\n", (int)attributes.type, (int)wanted);
    return attributes.type == wanted;
}

int main()
{
    int on_stack = 0;
    char *device, *host;
    CHECK(cudaMalloc(&device, 256));
    CHECK(cudaMallocHost(&host, 256));
    bool is_right = is_kind(device, cudaMemoryTypeDevice);
    is_right &= is_kind(device + 17, cudaMemoryTypeDevice);
    is_right &= is_kind(host, cudaMemoryTypeHost);
    is_right &= is_kind(&on_stack, cudaMemoryTypeUnregistered);
    CHECK(cudaFreeHost(host));
    CHECK(cudaFree(device));
    return verdict(is_right);
}
