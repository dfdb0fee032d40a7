/*
 * Copies of boxes, 2D and 3D, between every two of pageable memory, pinned memory, device memory and arrays; with gaps
 * between rows and slices, at odd places, larger than a chunk of the arena, with rows larger than one. After each copy
 * all of the destination is looked at, what lies around the box too. Then copies of rows of arrays, and what is
 * refused.
 */
#include <cstdint>
#include <cstring>
#include <cuda.h>
#include <memory>
#include <vector>

#include "check.h"

#define DRIVER(call)                                                                                                   \
    do {                                                                                                               \
        CUresult driver_result = (call);                                                                               \
        if (driver_result != CUDA_SUCCESS) {                                                                           \
            std::printf("line %d: %s gave %d\nFAIL\n", __LINE__, #call, (int)driver_result);                           \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

namespace
{

enum Kind { kPageable, kPinned, kDevice, kArray };
const char *const kNames[] = {"pageable", "pinned", "device", "array"};

/* A volume of bytes in one kind of memory: rows, slices, and a pitch where it is no array. */
struct Volume {
    Kind kind;
    size_t width, height, depth, pitch, rows;
    std::vector<uint8_t> pageable;
    uint8_t *pinned = nullptr;
    CUdeviceptr device = 0;
    CUarray array = nullptr;

    Volume(Kind kind_, size_t width_, size_t height_, size_t depth_)
        : kind(kind_), width(width_), height(height_), depth(depth_), pitch(width_ + 48), rows(height_ + 3)
    {
        if (kind == kArray) {
            CUDA_ARRAY3D_DESCRIPTOR wanted = {width, height, depth > 1 ? depth : 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
            DRIVER(cuArray3DCreate(&array, &wanted));
        } else if (kind == kDevice) {
            DRIVER(cuMemAlloc(&device, bytes()));
        } else if (kind == kPinned) {
            DRIVER(cuMemAllocHost(reinterpret_cast<void **>(&pinned), bytes()));
        } else {
            pageable.resize(bytes());
        }
    }
    Volume(const Volume &) = delete;
    Volume &operator=(const Volume &) = delete;
    ~Volume()
    {
        if (array) {
            DRIVER(cuArrayDestroy(array));
        }
        if (device) {
            DRIVER(cuMemFree(device));
        }
        if (pinned) {
            DRIVER(cuMemFreeHost(pinned));
        }
    }

    size_t bytes() const { return pitch * rows * depth; }
    size_t at(size_t x, size_t y, size_t z) const { return (z * rows + y) * pitch + x; }

    /* The whole volume out of and into a plain vector of the same layout, by copies of rows alone where there are any.
     */
    void write(const std::vector<uint8_t> &from)
    {
        if (kind == kPageable) {
            pageable = from;
        } else if (kind == kPinned) {
            std::memcpy(pinned, from.data(), from.size());
        } else if (kind == kDevice) {
            DRIVER(cuMemcpyHtoD(device, from.data(), from.size()));
        } else {
            move(const_cast<uint8_t *>(from.data()), true);
        }
    }
    void read(std::vector<uint8_t> &to)
    {
        if (kind == kPageable) {
            to = pageable;
        } else if (kind == kPinned) {
            std::memcpy(to.data(), pinned, to.size());
        } else if (kind == kDevice) {
            DRIVER(cuMemcpyDtoH(to.data(), device, to.size()));
        } else {
            move(to.data(), false);
        }
    }
    /* An array row by row: another way through the same calls. */
    void move(uint8_t *memory, bool to_array)
    {
        for (size_t z = 0; z < depth; z++) {
            for (size_t y = 0; y < height; y++) {
                CUDA_MEMCPY3D copy = {};
                copy.srcMemoryType = to_array ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
                copy.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
                copy.srcHost = copy.dstHost = memory + at(0, y, z);
                copy.srcArray = copy.dstArray = array;
                (to_array ? copy.dstY : copy.srcY) = y;
                (to_array ? copy.dstZ : copy.srcZ) = z;
                copy.WidthInBytes = width;
                copy.Height = copy.Depth = 1;
                DRIVER(cuMemcpy3D(&copy));
            }
        }
    }
};

struct Box {
    size_t width, height, depth;
};

CUmemorytype type_of(const Volume &volume, bool is_unified)
{
    if (volume.kind == kArray) {
        return CU_MEMORYTYPE_ARRAY;
    }
    if (is_unified) {
        return CU_MEMORYTYPE_UNIFIED;
    }
    return volume.kind == kDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

/* Where memory is, as whichever of the two members counts. */
CUdeviceptr address_of(Volume &volume)
{
    return volume.kind == kDevice   ? volume.device
           : volume.kind == kPinned ? reinterpret_cast<CUdeviceptr>(volume.pinned)
                                    : reinterpret_cast<CUdeviceptr>(volume.pageable.data());
}

CUDA_MEMCPY3D described(Volume &to, Volume &from, const Box &box, const size_t to_at[3], const size_t from_at[3],
                        bool is_unified)
{
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = type_of(from, is_unified);
    copy.dstMemoryType = type_of(to, is_unified);
    copy.srcHost = reinterpret_cast<void *>(copy.srcDevice = from.kind == kArray ? 0 : address_of(from));
    copy.dstHost = reinterpret_cast<void *>(copy.dstDevice = to.kind == kArray ? 0 : address_of(to));
    copy.srcArray = from.array;
    copy.dstArray = to.array;
    copy.srcPitch = from.pitch;
    copy.srcHeight = from.rows;
    copy.dstPitch = to.pitch;
    copy.dstHeight = to.rows;
    copy.srcXInBytes = from_at[0], copy.srcY = from_at[1], copy.srcZ = from_at[2];
    copy.dstXInBytes = to_at[0], copy.dstY = to_at[1], copy.dstZ = to_at[2];
    copy.WidthInBytes = box.width;
    copy.Height = box.height;
    copy.Depth = box.depth;
    return copy;
}

CUDA_MEMCPY2D flat(const CUDA_MEMCPY3D &copy)
{
    CUDA_MEMCPY2D two = {};
    two.srcMemoryType = copy.srcMemoryType, two.dstMemoryType = copy.dstMemoryType;
    two.srcHost = copy.srcHost, two.dstHost = copy.dstHost;
    two.srcDevice = copy.srcDevice, two.dstDevice = copy.dstDevice;
    two.srcArray = copy.srcArray, two.dstArray = copy.dstArray;
    two.srcPitch = copy.srcPitch, two.dstPitch = copy.dstPitch;
    two.srcXInBytes = copy.srcXInBytes, two.dstXInBytes = copy.dstXInBytes;
    two.srcY = copy.srcY, two.dstY = copy.dstY;
    two.WidthInBytes = copy.WidthInBytes, two.Height = copy.Height;
    return two;
}

uint8_t pattern(size_t i, unsigned seed)
{
    return static_cast<uint8_t>((i * 2654435761u + seed * 40503u) >> 13);
}

bool check(Kind to_kind, Kind from_kind, const Box &volume, const Box &box, unsigned variant, CUstream stream)
{
    Volume from(from_kind, volume.width, volume.height, volume.depth);
    Volume to(to_kind, volume.width, volume.height, volume.depth);
    std::vector<uint8_t> source(from.bytes()), wanted(to.bytes()), found(to.bytes());
    for (size_t i = 0; i < source.size(); i++) {
        source[i] = pattern(i, 1);
        wanted[i] = pattern(i, 2);
    }
    from.write(source);
    to.write(wanted);
    const size_t from_at[3] = {volume.width - box.width, volume.height - box.height, 0};
    const size_t to_at[3] = {(volume.width - box.width) / 2, 0, volume.depth - box.depth};
    const CUDA_MEMCPY3D copy = described(to, from, box, to_at, from_at, (variant & 1) != 0);
    const bool is_async = (variant & 2) != 0;
    if (box.depth == 1 && to_at[2] == 0) {
        const CUDA_MEMCPY2D two = flat(copy);
        DRIVER(is_async ? cuMemcpy2DAsync(&two, stream) : variant & 1 ? cuMemcpy2DUnaligned(&two) : cuMemcpy2D(&two));
    } else {
        DRIVER(is_async ? cuMemcpy3DAsync(&copy, stream) : cuMemcpy3D(&copy));
    }
    if (is_async) {
        DRIVER(cuStreamSynchronize(stream));
    }
    for (size_t z = 0; z < box.depth; z++) {
        for (size_t y = 0; y < box.height; y++) {
            std::memcpy(&wanted[to.at(to_at[0], to_at[1] + y, to_at[2] + z)],
                        &source[from.at(from_at[0], from_at[1] + y, from_at[2] + z)], box.width);
        }
    }
    to.read(found);
    for (size_t z = 0; z < to.depth; z++) {
        for (size_t y = 0; y < to.height; y++) {
            if (std::memcmp(&found[to.at(0, y, z)], &wanted[to.at(0, y, z)], to.width)) {
                return false;
            }
        }
    }
    return to_kind == kArray || found == wanted;
}

bool check_all(CUstream stream)
{
    const struct {
        const char *name;
        Box volume, box;
        bool has_arrays;
    } sizes[] = {
        {"one byte", {16, 4, 1}, {1, 1, 1}, true},
        {"a small rectangle", {100, 40, 1}, {33, 21, 1}, true},
        {"a small box", {64, 12, 8}, {29, 11, 7}, true},
        {"whole slices", {64, 5, 4}, {64, 5, 4}, true},
        {"a large rectangle", {20000, 110, 1}, {19990, 100, 1}, true},
        {"a large box", {6000, 10, 25}, {5990, 9, 20}, true},
        {"rows of megabytes", {3u << 19, 3, 1}, {(3u << 19) - 77, 2, 1}, false},
    };
    bool is_right = true;
    for (const auto &size : sizes) {
        for (int to = kPageable; to <= kArray; to++) {
            for (int from = kPageable; from <= kArray; from++) {
                if (!size.has_arrays && (to == kArray || from == kArray)) {
                    continue;
                }
                const unsigned nr_variants = size.box.width * size.box.height * size.box.depth > 1000000 ? 1 : 4;
                for (unsigned variant = 0; variant < nr_variants; variant++) {
                    if (!check(static_cast<Kind>(to), static_cast<Kind>(from), size.volume, size.box,
                               nr_variants == 1 ? (to + from) % 4 : variant, stream)) {
                        std::printf("%s, %s from %s, variant %u: WRONG\n", size.name, kNames[to], kNames[from],
                                    variant);
                        is_right = false;
                    }
                }
            }
        }
        std::printf("%s: done\n", size.name);
    }
    return is_right;
}

bool check_rows(CUstream stream)
{
    CUDA_ARRAY_DESCRIPTOR wanted = {1000, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1}, told;
    CUarray one, other;
    CUdeviceptr device;
    std::vector<uint32_t> values(1000), found(1000);
    for (uint32_t i = 0; i < 1000; i++) {
        values[i] = i * i;
    }
    DRIVER(cuArrayCreate(&one, &wanted));
    DRIVER(cuArrayCreate(&other, &wanted));
    DRIVER(cuMemAlloc(&device, 4000));
    DRIVER(cuArrayGetDescriptor(&told, one));
    bool is_right = told.Width == 1000 && told.Height == 0 && told.Format == wanted.Format && told.NumChannels == 1;
    DRIVER(cuMemcpyHtoA(one, 0, values.data(), 4000));
    DRIVER(cuMemcpyAtoA(other, 400, one, 0, 3600));
    DRIVER(cuMemcpyAtoD(device, other, 400, 3600));
    DRIVER(cuMemcpyDtoA(one, 0, device + 400, 3200));
    DRIVER(cuMemcpyAtoHAsync(found.data(), one, 0, 3200, stream));
    DRIVER(cuStreamSynchronize(stream));
    is_right = is_right && std::memcmp(found.data(), values.data() + 100, 3200) == 0;
    DRIVER(cuMemcpyHtoAAsync(one, 40, values.data(), 400, stream));
    DRIVER(cuStreamSynchronize(stream));
    DRIVER(cuMemcpyAtoH(found.data(), one, 40, 400));
    is_right = is_right && std::memcmp(found.data(), values.data(), 400) == 0;
    std::printf("rows of arrays: %d\n", is_right);
    std::printf("past the end: %d %d\n", cuMemcpyAtoH(found.data(), one, 3900, 200),
                cuMemcpyHtoA(one, 4001, found.data(), 1));
    DRIVER(cuMemFree(device));
    DRIVER(cuArrayDestroy(one));
    DRIVER(cuArrayDestroy(other));
    return is_right;
}

void show_refusals()
{
    std::vector<uint8_t> memory(4096);
    CUdeviceptr device;
    CUarray array;
    DRIVER(cuMemAlloc(&device, 4096));
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = memory.data();
    copy.srcPitch = 64;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = device;
    copy.dstPitch = 64;
    copy.WidthInBytes = 65;
    copy.Height = 10;
    std::printf("rows longer than the pitch: %d\n", cuMemcpy2D(&copy));
    copy.WidthInBytes = 64;
    copy.Height = 65;
    std::printf("past the end: %d\n", cuMemcpy2D(&copy));
    copy.Height = 0;
    std::printf("nothing: %d\n", cuMemcpy2D(&copy));
    CUDA_ARRAY3D_DESCRIPTOR wanted = {0, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    std::printf("no width: %d\n", cuArray3DCreate(&array, &wanted));
    wanted = {4, 4, 0, CU_AD_FORMAT_FLOAT, 3, 0};
    std::printf("three channels: %d\n", cuArray3DCreate(&array, &wanted));
    wanted = {4, 4, 0, static_cast<CUarray_format>(0x77), 1, 0};
    std::printf("no format: %d\n", cuArray3DCreate(&array, &wanted));
    wanted = {8, 4, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP};
    std::printf("faces that are no squares: %d\n", cuArray3DCreate(&array, &wanted));
    DRIVER(cuMemFree(device));
}

void show_mipmap()
{
    CUDA_ARRAY3D_DESCRIPTOR wanted = {40, 24, 0, CU_AD_FORMAT_HALF, 2, 0}, told;
    CUmipmappedArray mipmap;
    CUarray level;
    DRIVER(cuMipmappedArrayCreate(&mipmap, &wanted, 4));
    for (unsigned i = 0; i < 4; i++) {
        DRIVER(cuMipmappedArrayGetLevel(&level, mipmap, i));
        DRIVER(cuArray3DGetDescriptor(&told, level));
        std::printf("level %u: %zu x %zu\n", i, told.Width, told.Height);
    }
    std::printf("no such level: %d\n", cuMipmappedArrayGetLevel(&level, mipmap, 4));
    DRIVER(cuMipmappedArrayDestroy(mipmap));
}

} // namespace

int main()
{
    CUcontext context;
    CUdevice device;
    CUstream stream;
    DRIVER(cuInit(0));
    DRIVER(cuDeviceGet(&device, 0));
    DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    DRIVER(cuCtxSetCurrent(context));
    DRIVER(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    bool is_right = check_all(stream);
    is_right = check_rows(stream) && is_right;
    show_refusals();
    show_mipmap();
    DRIVER(cuStreamDestroy(stream));
    DRIVER(cuDevicePrimaryCtxRelease(device));
    return verdict(is_right);
}
