// Surfaces: kernels write and read the bytes of arrays, and what they leave is copied out and compared. What lies
// outside is dropped and reads as zero where the access says so.
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

#include "check.h"

namespace
{

bool is_right = true;

__global__ void surface_write(cudaSurfaceObject_t surface, int axes, int width, int height)
{
    const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
    const float value = static_cast<float>(x + 100 * y + 10000 * z);
    if (axes == 1) {
        surf1Dwrite(value, surface, x * 4);
    } else if (axes == 2) {
        surf2Dwrite(value, surface, x * 4, y);
    } else if (axes == 3) {
        surf3Dwrite(value, surface, x * 4, y, z);
    } else {
        surf2DLayeredwrite(value, surface, x * 4, y, z);
    }
    if (axes == 2 && x == 0 && y == 0) { /* outside: dropped, and brought to the last texel */
        surf2Dwrite(-1.0f, surface, width * 4, 0, cudaBoundaryModeZero);
        surf2Dwrite(-2.0f, surface, 4, height + 3, cudaBoundaryModeZero);
    }
}

__global__ void surface_add(cudaSurfaceObject_t surface, int axes, float *outside)
{
    const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
    if (axes == 1) {
        surf1Dwrite(surf1Dread<float>(surface, x * 4) + 0.5f, surface, x * 4);
    } else if (axes == 2) {
        surf2Dwrite(surf2Dread<float>(surface, x * 4, y) + 0.5f, surface, x * 4, y);
        if (x == 0 && y == 0) {
            outside[0] = surf2Dread<float>(surface, -4, 0, cudaBoundaryModeZero);
            outside[1] = surf2Dread<float>(surface, 4 * 1000, 2, cudaBoundaryModeZero);
        }
    } else if (axes == 3) {
        surf3Dwrite(surf3Dread<float>(surface, x * 4, y, z) + 0.5f, surface, x * 4, y, z);
    } else {
        surf2DLayeredwrite(surf2DLayeredread<float>(surface, x * 4, y, z) + 0.5f, surface, x * 4, y, z);
    }
}

void check_surface(const char *name, int axes, int width, int height, int depth)
{
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    const bool layered = axes == 4;
    cudaArray_t array;
    CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(width, axes > 1 ? height : 0, axes > 2 ? depth : 0),
                            cudaArraySurfaceLoadStore | (layered ? cudaArrayLayered : 0)));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    float *outside, seen[2];
    CHECK(cudaMalloc(&outside, sizeof(seen)));
    CHECK(cudaMemset(outside, 255, sizeof(seen)));
    surface_write<<<dim3(height, depth), width>>>(surface, axes, width, height);
    surface_add<<<dim3(height, depth), width>>>(surface, axes, outside);
    CHECK(cudaMemcpy(seen, outside, sizeof(seen), cudaMemcpyDeviceToHost));
    std::vector<float> found(static_cast<size_t>(width) * height * depth);
    cudaMemcpy3DParms copy = {};
    copy.srcArray = array;
    copy.dstPtr = make_cudaPitchedPtr(found.data(), width * sizeof(float), width, height);
    copy.extent = make_cudaExtent(width, height, depth);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    size_t wrong = 0;
    for (size_t i = 0; i < found.size(); i++) {
        const int x = static_cast<int>(i) % width, y = static_cast<int>(i) / width % height;
        const int z = static_cast<int>(i) / width / height;
        wrong += found[i] != static_cast<float>(x + 100 * y + 10000 * z) + 0.5f;
    }
    if (axes == 2) {
        wrong += seen[0] != 0 || seen[1] != 0;
    }
    is_right = is_right && wrong == 0;
    std::printf("%-32s %s\n", name, wrong ? "WRONG" : "as computed");
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(outside));
}

} // namespace

int main()
{
    check_surface("surf1D", 1, 100, 1, 1);
    check_surface("surf2D", 2, 50, 20, 1);
    check_surface("surf3D", 3, 16, 8, 4);
    check_surface("surf2DLayered", 4, 16, 8, 3);
    return verdict(is_right);
}
