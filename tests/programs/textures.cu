// Textures against a reference on the CPU that follows the CUDA programming guide's page on texture
// fetching. Coordinates are multiples of 1/256 of a texel, which every device represents, so that only the last bits of
// sums may differ. With --values it prints what was read, for comparing devices line by line.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <functional>
#include <type_traits>
#include <vector>

#include "check.h"
#include "texture_reference.h"

namespace
{

bool prints_values;
bool is_right = true;
const double kTolerance = 2e-5;

/* ---- kernels ---- */

template <int Kind> __device__ float read(cudaTextureObject_t texture, Point p)
{
    switch (Kind) {
    case 1:
        return tex1D<float>(texture, p.x);
    case 2:
        return tex2D<float>(texture, p.x, p.y);
    case 3:
        return tex3D<float>(texture, p.x, p.y, p.z);
    case 11:
        return tex1DLayered<float>(texture, p.x, p.layer);
    case 12:
        return tex2DLayered<float>(texture, p.x, p.y, p.layer);
    case 20:
        return tex2DLod<float>(texture, p.x, p.y, p.z);
    case 21:
        return tex2DGrad<float>(texture, p.x, p.y, make_float2(p.z, 0), make_float2(0, p.z));
    case 30:
        return texCubemap<float>(texture, p.x, p.y, p.z);
    case 31:
        return texCubemapLayered<float>(texture, p.x, p.y, p.z, p.layer / 6);
    case 40:
        return tex1Dfetch<float>(texture, p.layer);
    default:
        return static_cast<float>(tex2D<unsigned char>(texture, p.x, p.y));
    }
}

template <int Kind> __global__ void read_all(cudaTextureObject_t texture, const Point *points, float *out, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = read<Kind>(texture, points[i]);
    }
}

template <int Kind> std::vector<float> run(cudaTextureObject_t texture, const std::vector<Point> &points)
{
    const int n = static_cast<int>(points.size());
    Point *device_points;
    float *device_out;
    std::vector<float> out(points.size());
    CHECK(cudaMalloc(&device_points, n * sizeof(Point)));
    CHECK(cudaMalloc(&device_out, n * sizeof(float)));
    CHECK(cudaMemcpy(device_points, points.data(), n * sizeof(Point), cudaMemcpyHostToDevice));
    read_all<Kind><<<(n + 63) / 64, 64>>>(texture, device_points, device_out, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(out.data(), device_out, n * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device_points));
    CHECK(cudaFree(device_out));
    return out;
}

void compare(const char *name, const std::vector<Point> &points, const std::vector<float> &found,
             const std::function<double(const Point &)> &wanted)
{
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < points.size(); i++) {
        const double expected = wanted(points[i]);
        const double error = std::fabs(found[i] - expected) / std::fmax(1.0, std::fabs(expected));
        if (!(error <= worst)) {
            worst = std::isnan(error) ? 1.0 : error;
            at = i;
        }
        if (prints_values) {
            std::printf("%s %g %g %g %d: %a\n", name, points[i].x, points[i].y, points[i].z, points[i].layer, found[i]);
        }
    }
    std::printf("%-32s %zu reads, %s\n", name, points.size(), worst <= kTolerance ? "as computed" : "WRONG");
    if (worst > kTolerance) {
        std::printf("worst error %g: at %.9g %.9g %.9g %d it is %.9g, not %.9g\n", worst, points[at].x, points[at].y,
                    points[at].z, points[at].layer, found[at], wanted(points[at]));
        is_right = false;
    }
}

/* ---- making textures ---- */

cudaTextureDesc description(const Sampler &sampler, cudaTextureReadMode mode)
{
    cudaTextureDesc wanted = {};
    for (auto &axis : wanted.addressMode) {
        axis = sampler.mode;
    }
    for (auto &channel : wanted.borderColor) {
        channel = static_cast<float>(sampler.border);
    }
    wanted.filterMode = sampler.filters ? cudaFilterModeLinear : cudaFilterModePoint;
    wanted.readMode = mode;
    wanted.normalizedCoords = sampler.normalized;
    return wanted;
}

cudaTextureObject_t texture_of(cudaArray_t array, const cudaTextureDesc &wanted)
{
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &wanted, nullptr));
    return texture;
}

Image noise(int width, int height, int depth, int layers)
{
    Image image = {{width, height, depth}, layers, {}};
    uint32_t state = 1;
    for (int i = 0; i < width * height * depth * layers; i++) {
        state = state * 1664525u + 1013904223u;
        image.texels.push_back(static_cast<double>(state >> 16) / 65536 - 0.25);
    }
    return image;
}

cudaArray_t array_of(const Image &image, int axes, bool layered, unsigned flags)
{
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    std::vector<float> texels(image.texels.begin(), image.texels.end());
    const size_t height = axes > 1 ? image.extent[1] : 0;
    const size_t depth = layered ? image.layers : axes > 2 ? image.extent[2] : 0;
    cudaArray_t array;
    CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(image.extent[0], height, depth), flags));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(texels.data(), image.extent[0] * sizeof(float), image.extent[0], image.extent[1]);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(image.extent[0], image.extent[1], depth ? depth : 1);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    return array;
}

std::vector<Point> points_of(const Image &image, int axes, bool normalized)
{
    std::vector<Point> points;
    uint32_t state = 7;
    auto next = [&state](int axis_extent, bool scaled) {
        state = state * 1664525u + 1013904223u;
        const int span = 3 * 256 * axis_extent;
        const float at = static_cast<float>(static_cast<int>((state >> 8) % span) - 256 * axis_extent) / 256;
        return scaled ? at / static_cast<float>(axis_extent) : at;
    };
    for (int i = 0; i < 200; i++) {
        Point point = {};
        point.x = next(image.extent[0], normalized);
        point.y = axes > 1 ? next(image.extent[1], normalized) : 0;
        point.z = axes > 2 ? next(image.extent[2], normalized) : 0;
        point.layer = i % image.layers;
        points.push_back(point);
    }
    return points;
}

template <int Kind> void check_arrays(const char *name, int axes, bool layered, const Image &image)
{
    cudaArray_t array = array_of(image, axes, layered, layered ? cudaArrayLayered : 0);
    const char *modes[] = {"wrap", "clamp", "mirror", "border"};
    for (int mode = 0; mode < 4; mode++) {
        for (int variant = 0; variant < 4; variant++) {
            const Sampler sampler = {static_cast<cudaTextureAddressMode>(mode), (variant & 1) != 0, (variant & 2) != 0,
                                     0.75};
            if (!sampler.normalized && (mode == cudaAddressModeWrap || mode == cudaAddressModeMirror)) {
                continue;
            }
            cudaTextureObject_t texture = texture_of(array, description(sampler, cudaReadModeElementType));
            const std::vector<Point> points = points_of(image, axes, sampler.normalized);
            char title[64];
            std::snprintf(title, sizeof(title), "%s %s%s%s", name, modes[mode], sampler.filters ? " linear" : " point",
                          sampler.normalized ? " normalized" : "");
            compare(title, points, run<Kind>(texture, points),
                    [&](const Point &point) { return reference(image, sampler, point, axes); });
            CHECK(cudaDestroyTextureObject(texture));
        }
    }
    CHECK(cudaFreeArray(array));
}

/* ---- formats ---- */

double linear_of_srgb(double value)
{
    return value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
}

template <class T>
void check_format(const char *name, const std::vector<T> &texels, bool filters, bool srgb,
                  const std::function<double(T)> &meaning)
{
    const int width = 16, height = static_cast<int>(texels.size()) / width;
    const cudaChannelFormatDesc format =
        std::is_same<T, __half>::value ? cudaCreateChannelDescHalf() : cudaCreateChannelDesc<T>();
    Image image = {{width, height, 1}, 1, {}};
    for (const T &one : texels) {
        image.texels.push_back(meaning(one));
    }
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, width, height));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, texels.data(), width * sizeof(T), width * sizeof(T), height,
                              cudaMemcpyHostToDevice));
    const Sampler sampler = {cudaAddressModeClamp, filters, false, 0};
    const bool is_float = format.f == cudaChannelFormatKindFloat;
    cudaTextureDesc wanted = description(sampler, is_float ? cudaReadModeElementType : cudaReadModeNormalizedFloat);
    wanted.sRGB = srgb;
    cudaTextureObject_t texture = texture_of(array, wanted);
    const std::vector<Point> points = points_of(image, 2, false);
    compare(name, points, run<2>(texture, points),
            [&](const Point &point) { return reference(image, sampler, point, 2); });
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
}

void check_formats()
{
    std::vector<unsigned char> bytes;
    std::vector<short> shorts;
    std::vector<__half> halves;
    for (int i = 0; i < 256; i++) {
        bytes.push_back(static_cast<unsigned char>(i * 37));
        shorts.push_back(static_cast<short>(i * 9173 - 32768));
        halves.push_back(__float2half(static_cast<float>(i) / 16 - 3));
    }
    check_format<unsigned char>("unsigned char as fractions", bytes, false, false,
                                [](unsigned char v) { return v / 255.0; });
    check_format<unsigned char>("unsigned char sRGB", bytes, false, true,
                                [](unsigned char v) { return linear_of_srgb(v / 255.0); });
    check_format<short>("short as fractions", shorts, false, false,
                        [](short v) { return std::fmax(v / 32767.0, -1.0); });
    check_format<__half>("half linear", halves, true, false, [](__half v) { return __half2float(v); });

    const Image image = {{16, 16, 1}, 1, std::vector<double>(bytes.begin(), bytes.end())};
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned char>();
    const Sampler sampler = {cudaAddressModeClamp, false, false, 0};
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, 16, 16));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, bytes.data(), 16, 16, 16, cudaMemcpyHostToDevice));
    cudaTextureObject_t texture = texture_of(array, description(sampler, cudaReadModeElementType));
    const std::vector<Point> points = points_of(image, 2, false);
    compare("unsigned char as it is", points, run<50>(texture, points),
            [&](const Point &point) { return reference(image, sampler, point, 2); });
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
}

/* ---- memory that is no array ---- */

void check_linear_memory()
{
    const Image image = noise(1000, 1, 1, 1);
    const std::vector<float> texels(image.texels.begin(), image.texels.end());
    float *memory;
    CHECK(cudaMalloc(&memory, texels.size() * sizeof(float)));
    CHECK(cudaMemcpy(memory, texels.data(), texels.size() * sizeof(float), cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = memory;
    resource.res.linear.desc = cudaCreateChannelDesc<float>();
    resource.res.linear.sizeInBytes = texels.size() * sizeof(float);
    cudaTextureDesc wanted = {};
    wanted.readMode = cudaReadModeElementType;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &wanted, nullptr));
    std::vector<Point> points;
    for (int i = -20; i < 1020; i += 7) {
        points.push_back({0, 0, 0, i});
    }
    compare("tex1Dfetch", points, run<40>(texture, points), [&](const Point &point) {
        return point.layer < 0 || point.layer >= 1000 ? 0.0 : image.at(point.layer, 0, 0, 0);
    });
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFree(memory));
}

void check_pitched_memory()
{
    const Image image = noise(37, 21, 1, 1);
    const std::vector<float> texels(image.texels.begin(), image.texels.end());
    const Sampler sampler = {cudaAddressModeClamp, true, true, 0};
    float *memory;
    size_t pitch;
    CHECK(cudaMallocPitch(&memory, &pitch, 37 * sizeof(float), 21));
    CHECK(
        cudaMemcpy2D(memory, pitch, texels.data(), 37 * sizeof(float), 37 * sizeof(float), 21, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = memory;
    resource.res.pitch2D.desc = cudaCreateChannelDesc<float>();
    resource.res.pitch2D.width = 37;
    resource.res.pitch2D.height = 21;
    resource.res.pitch2D.pitchInBytes = pitch;
    const cudaTextureDesc wanted = description(sampler, cudaReadModeElementType);
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &wanted, nullptr));
    std::vector<Point> points;
    for (int i = 0; i < 200; i++) { /* whole texels and halves: 37 is no power of two, so that others are not exact */
        points.push_back({(i % 37 + 0.5f) / 37, (i % 21 + 0.5f) / 21, 0, 0});
    }
    compare("pitched memory", points, run<2>(texture, points),
            [&](const Point &point) { return reference(image, sampler, point, 2); });
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFree(memory));
}

/* ---- levels and faces ---- */

void check_levels()
{
    const int size = 64, nr_levels = 7;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaMipmappedArray_t mipmap;
    CHECK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(size, size, 0), nr_levels));
    std::vector<Image> levels;
    for (int level = 0; level < nr_levels; level++) {
        const int extent = size >> level;
        levels.push_back(noise(extent, extent, 1, 1));
        const std::vector<float> texels(levels.back().texels.begin(), levels.back().texels.end());
        cudaArray_t array;
        CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
        CHECK(cudaMemcpy2DToArray(array, 0, 0, texels.data(), extent * sizeof(float), extent * sizeof(float), extent,
                                  cudaMemcpyHostToDevice));
    }
    for (int mixes = 0; mixes < 2; mixes++) {
        const Sampler sampler = {cudaAddressModeWrap, true, true, 0};
        cudaTextureDesc wanted = description(sampler, cudaReadModeElementType);
        wanted.mipmapFilterMode = mixes ? cudaFilterModeLinear : cudaFilterModePoint;
        wanted.maxMipmapLevelClamp = 5;
        cudaResourceDesc resource = {};
        resource.resType = cudaResourceTypeMipmappedArray;
        resource.res.mipmap.mipmap = mipmap;
        cudaTextureObject_t texture;
        CHECK(cudaCreateTextureObject(&texture, &resource, &wanted, nullptr));
        std::vector<Point> points = points_of(levels[0], 2, true);
        for (size_t i = 0; i < points.size();
             i++) { /* between the levels by quarters, halves avoided: they may go either way */
            points[i].z = static_cast<float>(i % 9) + (i % 2 ? 0.25f : 0.0f);
        }
        auto at_level = [&](const Point &point, double lod) {
            lod = std::fmin(std::fmax(lod, 0.0), 5.0);
            const int below = static_cast<int>(mixes ? std::floor(lod) : std::floor(lod + 0.5));
            const double weight = mixes ? lod - below : 0;
            const double one = reference(levels[below], sampler, point, 2);
            return weight == 0 ? one : one * (1 - weight) + reference(levels[below + 1], sampler, point, 2) * weight;
        };
        compare(mixes ? "levels, mixed" : "levels, nearest", points, run<20>(texture, points),
                [&](const Point &point) { return at_level(point, point.z); });
        for (size_t i = 0; i < points.size(); i++) { /* a step of 1, 2, 4, ... texels */
            points[i].z = static_cast<float>(1 << i % 6) / size;
        }
        compare(mixes ? "gradients, mixed" : "gradients, nearest", points, run<21>(texture, points),
                [&](const Point &point) { return at_level(point, std::log2(point.z * size)); });
        CHECK(cudaDestroyTextureObject(texture));
    }
    CHECK(cudaFreeMipmappedArray(mipmap));
}

/* The layer of a point counts six faces for each cube. */
template <int Kind> void check_faces(const char *name, int cubes)
{
    const Image image = noise(8, 8, 1, 6 * cubes);
    cudaArray_t array = array_of(image, 2, true, cudaArrayCubemap | (cubes > 1 ? cudaArrayLayered : 0));
    const Sampler sampler = {cudaAddressModeClamp, false, true, 0};
    cudaTextureObject_t texture = texture_of(array, description(sampler, cudaReadModeElementType));
    std::vector<Point> points;
    for (int layer = 0; layer < 6 * cubes; layer++) {
        for (int i = 0; i < 16; i++) {
            const int face = layer % 6, axis = face / 2;
            const float s = (i % 4 - 1.5f) / 2, t = (i / 4 - 1.5f) / 2, sign = face % 2 ? -1.0f : 1.0f;
            points.push_back({axis == 0 ? sign : s, axis == 1 ? sign : axis == 0 ? s : t, axis == 2 ? sign : t, layer});
        }
    }
    compare(name, points, run<Kind>(texture, points), [&](const Point &p) {
        const double s[6] = {-p.z, p.z, p.x, p.x, p.x, -p.x};
        const double t[6] = {-p.y, -p.y, p.z, -p.z, -p.y, -p.y};
        const int face = p.layer % 6;
        const Point on = {static_cast<float>((s[face] + 1) / 2), static_cast<float>((t[face] + 1) / 2), 0, p.layer};
        return reference(image, sampler, on, 2);
    });
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
}

/* ---- gathering ---- */

__global__ void gather(cudaTextureObject_t texture, float4 *out)
{
    out[threadIdx.x] =
        tex2Dgather<float4>(texture, static_cast<float>(threadIdx.x % 7 + 1), static_cast<float>(threadIdx.x / 7 + 1));
}

void check_gather()
{
    const Image image = noise(8, 8, 1, 1);
    cudaArray_t array = array_of(image, 2, false, cudaArrayTextureGather);
    const Sampler sampler = {cudaAddressModeClamp, false, false, 0};
    cudaTextureObject_t texture = texture_of(array, description(sampler, cudaReadModeElementType));
    float4 *device, found[49];
    CHECK(cudaMalloc(&device, sizeof(found)));
    gather<<<1, 49>>>(texture, device);
    CHECK(cudaMemcpy(found, device, sizeof(found), cudaMemcpyDeviceToHost));
    bool is_same = true;
    for (int i = 0; i < 49; i++) {
        const int x = i % 7, y = i / 7; /* the footprint around the corner where four texels meet */
        const float wanted[4] = {
            static_cast<float>(image.at(x, y + 1, 0, 0)), static_cast<float>(image.at(x + 1, y + 1, 0, 0)),
            static_cast<float>(image.at(x + 1, y, 0, 0)), static_cast<float>(image.at(x, y, 0, 0))};
        is_same = is_same && std::memcmp(&found[i], wanted, sizeof(wanted)) == 0;
    }
    is_right = is_right && is_same;
    std::printf("tex2Dgather %s\n", is_same ? "as computed" : "WRONG");
    CHECK(cudaFree(device));
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
}

/* ---- questions ---- */

void check_questions()
{
    const Image image = noise(8, 4, 1, 1);
    cudaArray_t array = array_of(image, 2, false, 0);
    const Sampler sampler = {cudaAddressModeMirror, true, true, 0.5};
    cudaTextureObject_t texture = texture_of(array, description(sampler, cudaReadModeElementType));
    cudaChannelFormatDesc format;
    cudaExtent extent;
    unsigned flags;
    CHECK(cudaArrayGetInfo(&format, &extent, &flags, array));
    std::printf("array %zu x %zu x %zu, %d bits, flags %u\n", extent.width, extent.height, extent.depth, format.x,
                flags);
    cudaResourceDesc resource;
    cudaTextureDesc told;
    CHECK(cudaGetTextureObjectResourceDesc(&resource, texture));
    CHECK(cudaGetTextureObjectTextureDesc(&told, texture));
    std::printf("texture of %s array, mode %d, filter %d, normalized %d, border %g\n",
                resource.resType == cudaResourceTypeArray && resource.res.array.array == array ? "this" : "another",
                told.addressMode[1], told.filterMode, told.normalizedCoords, told.borderColor[2]);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
}

} // namespace

int main(int argc, char **argv)
{
    prints_values = argc > 1 && std::strcmp(argv[1], "--values") == 0;
    check_arrays<1>("tex1D", 1, false, noise(64, 1, 1, 1));
    check_arrays<2>("tex2D", 2, false, noise(32, 16, 1, 1));
    check_arrays<3>("tex3D", 3, false, noise(8, 16, 4, 1));
    check_arrays<11>("tex1DLayered", 1, true, noise(32, 1, 1, 5));
    check_arrays<12>("tex2DLayered", 2, true, noise(16, 8, 1, 3));
    check_formats();
    check_linear_memory();
    check_pitched_memory();
    check_levels();
    check_faces<30>("cube map", 1);
    check_faces<31>("layers of cube maps", 3);
    check_gather();
    check_questions();
    return verdict(is_right);
}
