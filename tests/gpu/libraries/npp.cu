/* Images by NPP: a filter, a resize, a histogram, labels of a segmentation by watersheds. */
#include <npp.h>
#include <vector>

#include "library.h"

int main()
{
    const int SIDE = 128;
    std::vector<Npp8u> image(SIDE * SIDE);
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            image[y * SIDE + x] = (Npp8u)((x * x / 16 + y * y / 16 + (x / 16 * 40) + (y / 32 * 30)) & 255);
        }
    }
    NppStreamContext context = {};
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    context.hStream = 0;
    context.nCudaDeviceId = 0;
    context.nMultiProcessorCount = properties.multiProcessorCount;
    context.nMaxThreadsPerMultiProcessor = properties.maxThreadsPerMultiProcessor;
    context.nMaxThreadsPerBlock = properties.maxThreadsPerBlock;
    context.nSharedMemPerBlock = properties.sharedMemPerBlock;
    context.nCudaDevAttrComputeCapabilityMajor = properties.major;
    context.nCudaDevAttrComputeCapabilityMinor = properties.minor;
    Npp8u *in = on_device(image), *out = on_device(image);
    const NppiSize size = {SIDE, SIDE}, half = {SIDE / 2, SIDE / 2}, inner = {SIDE - 4, SIDE - 4};
    const NppiRect whole = {0, 0, SIDE, SIDE}, quarter = {0, 0, SIDE / 2, SIDE / 2};
    DO(nppiFilterGauss_8u_C1R_Ctx(in + 2 * SIDE + 2, SIDE, out + 2 * SIDE + 2, SIDE, inner, NPP_MASK_SIZE_5_X_5,
                                  context));
    CHECK(cudaDeviceSynchronize());
    say("filtered", from_device(out, SIDE * SIDE));
    DO(nppiResize_8u_C1R_Ctx(in, SIDE, size, whole, out, SIDE, half, quarter, NPPI_INTER_LINEAR, context));
    CHECK(cudaDeviceSynchronize());
    say("resized", from_device(out, SIDE * SIDE));

    size_t bytes = 0;
    DO(nppiSegmentWatershedGetBufferSize_8u_C1R(size, &bytes));
    Npp8u *buffer = on_device(std::vector<Npp8u>(bytes + 1));
    Npp32u *labels = on_device(std::vector<Npp32u>(SIDE * SIDE));
    DO(nppiSegmentWatershed_8u_C1IR_Ctx(in, SIDE, labels, SIDE * sizeof(Npp32u), nppiNormInf,
                                        NPP_WATERSHED_SEGMENT_BOUNDARIES_NONE, size, buffer, context));
    CHECK(cudaDeviceSynchronize());
    say("segments", from_device(labels, SIDE * SIDE));
    say("segmented", from_device(in, SIDE * SIDE));
    return 0;
}
