// Words of managed memory that program and kernel exchange while the kernel runs. The program waits for a word that the
// kernel writes, and answers; with an argument the kernel waits for that answer before it ends.
#include "check.h"

struct words {
    unsigned int begun, answered, seen;
};

__global__ void exchange(volatile words *shared, bool waits)
{
    shared->begun = 1;
    __threadfence_system();
    while (waits && shared->answered == 0) {
    }
    shared->seen = shared->answered;
}

int main(int argc, char **)
{
    const bool waits = argc > 1;
    volatile words *shared;
    int is_concurrent;
    CHECK(cudaDeviceGetAttribute(&is_concurrent, cudaDevAttrConcurrentManagedAccess, 0));
    CHECK(cudaMallocManaged((void **)&shared, sizeof(*shared)));
    shared->begun = shared->answered = shared->seen = 0;
    exchange<<<1, 1>>>((volatile words *)shared, waits);
    CHECK(cudaGetLastError());
    if (is_concurrent) {
        while (shared->begun == 0) {
        }
        shared->answered = 7;
    }
    CHECK(cudaDeviceSynchronize());
    const bool is_right = shared->begun == 1 && (waits ? shared->seen == 7 : shared->seen == 0 || shared->seen == 7);
    printf("the kernel %s\n", waits ? "waited" : "did not wait");
    return verdict(is_right);
}
