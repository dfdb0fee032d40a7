/* Arrays, textures, surfaces. */
#include "case.h"

static CUarray array_new(size_t width, size_t height)
{
    CUDA_ARRAY_DESCRIPTOR descriptor = {
        .Width = width, .Height = height, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    CUarray array = NULL;

    MUST(cuArrayCreate, &array, &descriptor);
    return array;
}

CASE(array_create_and_destroy)
{
    static const CUarray_format formats[] = {CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_SIGNED_INT16, CU_AD_FORMAT_HALF,
                                             CU_AD_FORMAT_FLOAT};

    for (unsigned int i = 0; i < 4; i++) {
        for (unsigned int channels = 1; channels <= 4; channels++) {
            CUDA_ARRAY_DESCRIPTOR descriptor = {
                .Width = 17, .Height = 5, .Format = formats[i], .NumChannels = channels};
            CUDA_ARRAY_DESCRIPTOR got = {0};
            CUarray array = NULL;

            if (say(text("create %u %u", i, channels), CU(cuArrayCreate)(&array, &descriptor)) != CUDA_SUCCESS) {
                continue;
            }
            say(text("descriptor of %u %u", i, channels), CU(cuArrayGetDescriptor)(&got, array));
            printf("is of %u %u: %zu %zu %d %u\n", i, channels, got.Width, got.Height, (int)got.Format,
                   got.NumChannels);
            say(text("destroy %u %u", i, channels), CU(cuArrayDestroy)(array));
        }
    }
}

CASE(array_copy_linear)
{
    CUarray array = array_new(256, 0);
    unsigned int words[256], back[256] = {0};

    for (unsigned int i = 0; i < 256; i++) {
        words[i] = i * i;
    }
    DO(cuMemcpyHtoA, array, 0, words, sizeof(words));
    DO(cuMemcpyAtoH, back, array, 0, sizeof(back));
    say_bytes("back", back, sizeof(back));
    DO(cuMemcpyAtoH, back, array, 512, 100);
    say_bytes("part", back, sizeof(back));
    CUdeviceptr memory = device_bytes(1024, 1);
    DO(cuMemcpyAtoD, memory, array, 0, 1024);
    say_device_bytes("device", memory, 1024);
    DO(cuMemcpyDtoA, array, 100, memory, 100);
    DO(cuMemcpyAtoA, array, 0, array, 512, 512);
}

CASE(array_copy_2d)
{
    CUarray array = array_new(20, 10);
    unsigned int words[10][25], back[10][25];
    CUDA_MEMCPY2D there = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = words,
                           .srcPitch = 100,
                           .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                           .dstArray = array,
                           .WidthInBytes = 80,
                           .Height = 10};
    CUDA_MEMCPY2D here = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = array,
                          .srcXInBytes = 8,
                          .srcY = 2,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = back,
                          .dstPitch = 100,
                          .WidthInBytes = 40,
                          .Height = 7};

    for (unsigned int i = 0; i < 250; i++) {
        words[i / 25][i % 25] = i;
    }
    memset(back, 0, sizeof(back));
    DO(cuMemcpy2D, &there);
    DO(cuMemcpy2D, &here);
    say_bytes("back", back, sizeof(back));
}

CASE(array_3d)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        .Width = 8, .Height = 4, .Depth = 3, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2, .Flags = 0};
    CUDA_ARRAY3D_DESCRIPTOR got = {0};
    CUarray array = NULL;

    if (DO(cuArray3DCreate, &array, &descriptor) != CUDA_SUCCESS) {
        return;
    }
    DO(cuArray3DGetDescriptor, &got, array);
    printf("is: %zu %zu %zu %d %u %u\n", got.Width, got.Height, got.Depth, (int)got.Format, got.NumChannels, got.Flags);
    DO(cuArrayDestroy, array);
}

CASE(array_mipmapped)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = 16, .Height = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUmipmappedArray mipmap = NULL;
    CUarray level = NULL;

    if (DO(cuMipmappedArrayCreate, &mipmap, &descriptor, 3) != CUDA_SUCCESS) {
        return;
    }
    DO(cuMipmappedArrayGetLevel, &level, mipmap, 1);
    DO(cuMipmappedArrayGetLevel, &level, mipmap, 3);
    DO(cuMipmappedArrayDestroy, mipmap);
}

CASE(texture_object)
{
    CUtexObject texture = 0;
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR}, got;
    CUDA_TEXTURE_DESC description = {.filterMode = CU_TR_FILTER_MODE_POINT, .flags = CU_TRSF_READ_AS_INTEGER};

    resource.res.linear.devPtr = device_bytes(4096, 1);
    resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = 4096;
    if (DO(cuTexObjectCreate, &texture, &resource, &description, NULL) != CUDA_SUCCESS) {
        return;
    }
    DO(cuTexObjectGetResourceDesc, &got, texture);
    say_number("type", got.resType);
    DO(cuTexObjectDestroy, texture);
}

CASE(surface_object)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        .Width = 16, .Height = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1, .Flags = CUDA_ARRAY3D_SURFACE_LDST};
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    CUsurfObject surface = 0;

    MUST(cuArray3DCreate, &resource.res.array.hArray, &descriptor);
    DO(cuSurfObjectCreate, &surface, &resource);
    DO(cuSurfObjectDestroy, surface);
}

CASE(array_errors)
{
    CUDA_ARRAY_DESCRIPTOR descriptor = {.Width = 0, .Height = 1, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array = NULL;

    ROW("no description", cuArrayCreate, &array, NULL);
    ROW("width 0", cuArrayCreate, &array, &descriptor);
    descriptor.Width = 16;
    descriptor.NumChannels = 3;
    ROW("3 channels", cuArrayCreate, &array, &descriptor);
    descriptor.NumChannels = 1;
    descriptor.Format = (CUarray_format)0x7777;
    ROW("an unknown format", cuArrayCreate, &array, &descriptor);
    ROW("no array", cuArrayDestroy, NULL);
    ROW("no texture", cuTexObjectDestroy, 0);
    ROW("no surface", cuSurfObjectDestroy, 0);
}
