/* Globals and constants of a module, reached by name from the host and by address from a kernel. */
#include <cstring>

#include "check.h"

__device__ int counters[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__device__ int *indirect;
__constant__ float factors[4] = {1.0f, 2.0f, 4.0f, 8.0f};
__device__ const char greeting[] = "from the device";

__global__ void apply(float *out)
{
    int i = threadIdx.x;
    counters[i] += 100;
    out[i] = counters[i] * factors[i % 4];
    if (i == 0) {
        indirect[0] = greeting[0];
    }
}

int main()
{
    int values[8], cell = 0;
    float out[8], factors_now[4] = {0.5f, 1.5f, 2.5f, 3.5f};
    char text[sizeof(greeting)];
    CHECK(cudaMemcpyFromSymbol(values, counters, sizeof(values)));
    bool is_right = values[0] == 1 && values[7] == 8;
    int ninety = 90;
    CHECK(cudaMemcpyToSymbol(counters, &ninety, sizeof(int), 3 * sizeof(int)));
    CHECK(cudaMemcpyToSymbol(factors, factors_now, sizeof(factors_now)));
    CHECK(cudaMemcpyFromSymbol(text, greeting, sizeof(text)));
    float *device_out;
    int *device_cell;
    CHECK(cudaMalloc(&device_out, sizeof(out)));
    CHECK(cudaMalloc(&device_cell, sizeof(int)));
    CHECK(cudaMemset(device_cell, 0, sizeof(int)));
    CHECK(cudaMemcpyToSymbol(indirect, &device_cell, sizeof(device_cell)));
    apply<<<1, 8>>>(device_out);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(out, device_out, sizeof(out), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpyFromSymbol(values, counters, sizeof(values)));
    CHECK(cudaMemcpy(&cell, device_cell, sizeof(cell), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 8; i++) {
        int expected = (i == 3 ? 90 : i + 1) + 100;
        is_right = is_right && values[i] == expected && out[i] == expected * factors_now[i % 4];
    }
    void *address = nullptr;
    size_t bytes = 0;
    CHECK(cudaGetSymbolAddress(&address, counters));
    CHECK(cudaGetSymbolSize(&bytes, counters));
    CHECK(cudaMemcpy(values, address, sizeof(values), cudaMemcpyDeviceToHost));
    is_right = is_right && bytes == sizeof(values) && values[3] == 190 && cell == 'f' &&
               std::strcmp(text, "from the device") == 0;
    std::printf("counters[3] %d, out[7] %.1f, greeting \"%s\", %zu bytes\n", values[3], out[7], text, bytes);
    return verdict(is_right);
}
