/* A kernel as machine code alone, for one architecture: a device that cannot run it says so at the launch, and goes on.
 */
#include "check.h"

__global__ void set(int *word)
{
    *word = 42;
}

int main()
{
    int *word, host = 7;
    CHECK(cudaMalloc(&word, sizeof(*word)));
    CHECK(cudaMemcpy(word, &host, sizeof(host), cudaMemcpyHostToDevice));
    for (int i = 0; i < 2; i++) {
        void *arguments[] = {&word};
        cudaError_t launched = cudaLaunchKernel((const void *)set, dim3(1), dim3(1), arguments, 0, nullptr);
        std::printf("launch: %s\n", cudaGetErrorName(launched));
        cudaError_t last = cudaGetLastError(), then = cudaGetLastError();
        std::printf("last error: %s, then %s\n", cudaGetErrorName(last), cudaGetErrorName(then));
        CHECK(cudaDeviceSynchronize());
    }
    cudaFuncAttributes attributes;
    std::printf("attributes: %s\n", cudaGetErrorName(cudaFuncGetAttributes(&attributes, set)));
    cudaGetLastError();
    CHECK(cudaMemcpy(&host, word, sizeof(host), cudaMemcpyDeviceToHost));
    std::printf("the word is %d\n", host);
    return verdict(host == 7 || host == 42);
}
