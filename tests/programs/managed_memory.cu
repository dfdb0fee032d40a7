/* Managed memory: both sides write it in turn, advice is kept, prefetches are taken, registered memory tells its flags.
 */
#include <algorithm>
#include <cstring>

#include "check.h"

__global__ void twice(int *values, int nr)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < nr) {
        values[i] *= 2;
    }
}

static int asked(const void *at, size_t bytes, cudaMemRangeAttribute attribute)
{
    int value = -7;
    CHECK(cudaMemRangeGetAttribute(&value, sizeof(value), attribute, at, bytes));
    return value;
}

int main()
{
    const int nr = 50000;
    const size_t bytes = nr * sizeof(int);
    int has = 0;
    CHECK(cudaDeviceGetAttribute(&has, cudaDevAttrManagedMemory, 0));
    printf("supported: %d\n", has);
    int *values;
    CHECK(cudaMallocManaged(&values, bytes));
    for (int i = 0; i < nr; i++) {
        values[i] = i;
    }
    const cudaMemLocation device = {cudaMemLocationTypeDevice, 0};
    cudaMemLocation host = {};
    host.type = cudaMemLocationTypeHost;
    CHECK(cudaMemPrefetchAsync(values, bytes, device, 0, nullptr));
    twice<<<(nr + 255) / 256, 256>>>(values, nr);
    CHECK(cudaMemPrefetchAsync(values, bytes, host, 0, nullptr));
    CHECK(cudaDeviceSynchronize());
    bool is_right = true;
    for (int i = 0; i < nr; i++) {
        is_right &= values[i] == 2 * i;
    }
    printf("doubled: %d\n", is_right);

    printf("nothing was said: %d %d\n", asked(values, bytes, cudaMemRangeAttributeReadMostly),
           asked(values, bytes, cudaMemRangeAttributePreferredLocation));
    CHECK(cudaMemAdvise(values, bytes, cudaMemAdviseSetReadMostly, device));
    CHECK(cudaMemAdvise(values, bytes / 2, cudaMemAdviseSetPreferredLocation, device));
    CHECK(cudaMemAdvise(values, bytes, cudaMemAdviseSetAccessedBy, device));
    CHECK(cudaMemAdvise(values, bytes, cudaMemAdviseSetAccessedBy, host));
    printf("read mostly: %d\n", asked(values, bytes, cudaMemRangeAttributeReadMostly));
    printf("preferred: %d, of all: %d\n", asked(values, bytes / 2, cudaMemRangeAttributePreferredLocation),
           asked(values, bytes, cudaMemRangeAttributePreferredLocation));
    printf("last prefetch: %d\n", asked(values, bytes, cudaMemRangeAttributeLastPrefetchLocation));
    int users[3] = {9, 9, 9};
    CHECK(cudaMemRangeGetAttribute(users, sizeof(users), cudaMemRangeAttributeAccessedBy, values, bytes));
    std::sort(users, users + 3);
    printf("accessed by: %d %d %d\n", users[0], users[1], users[2]);
    CHECK(cudaMemAdvise(values, bytes, cudaMemAdviseUnsetAccessedBy, device));
    CHECK(cudaMemRangeGetAttribute(users, sizeof(users), cudaMemRangeAttributeAccessedBy, values, bytes));
    printf("accessed by: %d %d %d\n", users[0], users[1], users[2]);
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, values));
    printf("type: %d\n", (int)attributes.type);
    CHECK(cudaStreamAttachMemAsync(nullptr, values, 0, cudaMemAttachHost));
    CHECK(cudaFree(values));

    int local[4];
    int reaches_all = 0;
    CHECK(cudaDeviceGetAttribute(&reaches_all, cudaDevAttrPageableMemoryAccess, 0));
    const cudaError_t on_variable = cudaMemAdvise(local, sizeof(local), cudaMemAdviseSetReadMostly, device);
    cudaGetLastError();
    printf("advice on a variable is as the attribute says: %d\n", (on_variable == cudaSuccess) == (reaches_all != 0));
    char *own = (char *)malloc(1 << 16);
    memset(own, 3, 1 << 16);
    CHECK(cudaHostRegister(own, 1 << 16, cudaHostRegisterPortable));
    printf("registered twice: %s\n", cudaGetErrorName(cudaHostRegister(own, 1 << 16, 0)));
    char *copy;
    CHECK(cudaMalloc(&copy, 1 << 16));
    CHECK(cudaMemcpyAsync(copy, own, 1 << 16, cudaMemcpyHostToDevice));
    memset(own, 0, 1);
    CHECK(cudaMemcpyAsync(own, copy, 1 << 16, cudaMemcpyDeviceToHost));
    CHECK(cudaDeviceSynchronize());
    is_right &= own[1] == 3 && own[65535] == 3;
    unsigned flags = 0;
    CHECK(cudaHostGetFlags(&flags, own));
    printf("portable: %d\n", (flags & cudaHostRegisterPortable) != 0);
    CHECK(cudaHostUnregister(own));
    printf("unregistered twice: %s\n", cudaGetErrorName(cudaHostUnregister(own)));
    CHECK(cudaFree(copy));
    free(own);
    return verdict(is_right);
}
