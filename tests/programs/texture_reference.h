/* What a read of a texture gives, by the formulas of the CUDA programming guide's page on texture fetching. */
#ifndef TESTS_PROGRAMS_TEXTURE_REFERENCE_H
#define TESTS_PROGRAMS_TEXTURE_REFERENCE_H

#include <cmath>
#include <cuda_runtime.h>
#include <vector>

struct Point {
    float x, y, z;
    int layer;
};

/* Values of one channel, as a read gives them. */
struct Image {
    int extent[3];
    int layers;
    std::vector<double> texels;

    double at(int x, int y, int z, int layer) const
    {
        return texels[((static_cast<size_t>(layer) * extent[2] + z) * extent[1] + y) * extent[0] + x];
    }
};

struct Sampler {
    cudaTextureAddressMode mode;
    bool filters;
    bool normalized;
    double border;
};

/* The number of a texel inside the image; -1: border. */
inline int fold(long index, int extent, cudaTextureAddressMode mode)
{
    if (index >= 0 && index < extent) {
        return static_cast<int>(index);
    }
    const long period = 2L * extent;
    switch (mode) {
    case cudaAddressModeWrap:
        return static_cast<int>((index % extent + extent) % extent);
    case cudaAddressModeMirror:
        index = (index % period + period) % period;
        return static_cast<int>(index < extent ? index : period - 1 - index);
    case cudaAddressModeClamp:
        return index < 0 ? 0 : extent - 1;
    default:
        return -1;
    }
}

inline double texel(const Image &image, const Sampler &sampler, const long index[3], int layer)
{
    int folded[3];
    for (int axis = 0; axis < 3; axis++) {
        folded[axis] = fold(index[axis], image.extent[axis], sampler.mode);
        if (folded[axis] < 0) {
            return sampler.border;
        }
    }
    return image.at(folded[0], folded[1], folded[2], layer);
}

inline double reference(const Image &image, const Sampler &sampler, const Point &point, int axes)
{
    const float given[3] = {point.x, point.y, point.z};
    long first[3] = {0, 0, 0};
    double weight[3] = {0, 0, 0};
    for (int axis = 0; axis < axes; axis++) {
        double at = given[axis] * (sampler.normalized ? image.extent[axis] : 1.0);
        if (sampler.filters) {
            const double fixed = std::floor((at - 0.5) * 256 + 0.5);
            first[axis] = static_cast<long>(std::floor(fixed / 256));
            weight[axis] = fixed / 256 - static_cast<double>(first[axis]);
        } else {
            first[axis] = static_cast<long>(std::floor(at));
        }
    }
    double sum = 0;
    for (int corner = 0; corner < (sampler.filters ? 1 << axes : 1); corner++) {
        double share = 1;
        long index[3] = {0, 0, 0};
        for (int axis = 0; axis < axes; axis++) {
            const bool second = corner >> axis & 1;
            index[axis] = first[axis] + second;
            share *= second ? weight[axis] : 1 - weight[axis];
        }
        if (share != 0) {
            sum += share * texel(image, sampler, index, point.layer);
        }
    }
    return sum;
}

#endif
