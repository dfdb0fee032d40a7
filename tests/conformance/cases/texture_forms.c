/* What a driver takes as the description of a texture or a surface, field by field: a row has the results for each
 * value, 0 for success. */
#include "case.h"

static const char *row_text;
static char row_of[512];

static void begin_row(const char *label)
{
    row_text = label;
    row_of[0] = 0;
}

static void add(CUresult result)
{
    char number[16];

    snprintf(number, sizeof(number), "%s%d", row_of[0] ? " " : "", (int)result);
    strncat(row_of, number, sizeof(row_of) - strlen(row_of) - 1);
}

static void end_row(void)
{
    say_text(row_text, row_of);
}

static void make(const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture,
                 const CUDA_RESOURCE_VIEW_DESC *view)
{
    CUtexObject object = 0;
    CUresult result = CU(cuTexObjectCreate)(&object, resource, texture, view);

    add(result);
    if (result == CUDA_SUCCESS) {
        MUST(cuTexObjectDestroy, object);
    }
}

static const CUDA_TEXTURE_DESC plain = {
    .addressMode = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP}};

enum { BYTES = 1 << 16 };

static CUDA_RESOURCE_DESC linear(CUarray_format format, unsigned int nr_channels)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};

    resource.res.linear.devPtr = device_bytes(BYTES, 1);
    resource.res.linear.format = format;
    resource.res.linear.numChannels = nr_channels;
    resource.res.linear.sizeInBytes = BYTES;
    return resource;
}

static CUDA_RESOURCE_DESC pitched(CUarray_format format, unsigned int nr_channels)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_PITCH2D};

    resource.res.pitch2D.devPtr = device_bytes(BYTES, 1);
    resource.res.pitch2D.format = format;
    resource.res.pitch2D.numChannels = nr_channels;
    resource.res.pitch2D.width = 16;
    resource.res.pitch2D.height = 16;
    resource.res.pitch2D.pitchInBytes = 512;
    return resource;
}

static CUDA_RESOURCE_DESC array(CUarray_format format, size_t width, size_t height, size_t depth, unsigned int flags)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        .Width = width, .Height = height, .Depth = depth, .Format = format, .NumChannels = 1, .Flags = flags};

    MUST(cuArray3DCreate, &resource.res.array.hArray, &descriptor);
    return resource;
}

static CUDA_RESOURCE_DESC mipmapped(CUarray_format format)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY};
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {.Width = 16, .Height = 16, .Format = format, .NumChannels = 1};

    MUST(cuMipmappedArrayCreate, &resource.res.mipmap.hMipmappedArray, &descriptor, 4);
    return resource;
}

/* One field of the texture's description at a time. */
static void sweep(CUDA_RESOURCE_DESC resource)
{
    static const unsigned int modes[] = {0, 1, 2, 3, 4, 99}, anisotropies[] = {0, 1, 16, 17, 1000};
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_DESC odd = resource;

    for (unsigned int flags = 0; flags <= 3; flags++) {
        begin_row(text("filter 0 1 2 3 4 99 with flags %u", flags));
        for (unsigned int i = 0; i < 6; i++) {
            texture = plain;
            texture.flags = flags;
            texture.filterMode = (CUfilter_mode)modes[i];
            make(&resource, &texture, NULL);
        }
        end_row();
        for (unsigned int axis = 0; axis < 3; axis++) {
            begin_row(text("mode of axis %u 0 1 2 3 4 99 with flags %u", axis, flags));
            for (unsigned int i = 0; i < 6; i++) {
                texture = plain;
                texture.flags = flags;
                texture.addressMode[axis] = (CUaddress_mode)modes[i];
                make(&resource, &texture, NULL);
            }
            end_row();
        }
    }
    begin_row("each flag");
    for (unsigned int bit = 0; bit < 32; bit++) {
        texture = plain;
        texture.flags = 1u << bit;
        make(&resource, &texture, NULL);
    }
    end_row();
    begin_row("anisotropy 0 1 16 17 1000");
    for (unsigned int i = 0; i < 5; i++) {
        texture = plain;
        texture.maxAnisotropy = anisotropies[i];
        make(&resource, &texture, NULL);
    }
    end_row();
    begin_row("filter of levels 0 1 2 3 4 99");
    for (unsigned int i = 0; i < 6; i++) {
        texture = plain;
        texture.mipmapFilterMode = (CUfilter_mode)modes[i];
        make(&resource, &texture, NULL);
    }
    end_row();
    begin_row("levels 0 to 5, 2 to 1, -1 to 100, bias 100, -100");
    for (unsigned int i = 0; i < 5; i++) {
        texture = plain;
        texture.minMipmapLevelClamp = (float[]){0, 2, -1, 0, 0}[i];
        texture.maxMipmapLevelClamp = (float[]){5, 1, 100, 0, 0}[i];
        texture.mipmapLevelBias = (float[]){0, 0, 0, 100, -100}[i];
        make(&resource, &texture, NULL);
    }
    end_row();
    begin_row("flags of the resource");
    odd.flags = 1;
    make(&odd, &plain, NULL);
    end_row();
    begin_row("all that filters and wraps");
    texture = (CUDA_TEXTURE_DESC){.filterMode = CU_TR_FILTER_MODE_LINEAR,
                                  .flags = CU_TRSF_NORMALIZED_COORDINATES,
                                  .maxAnisotropy = 4,
                                  .mipmapFilterMode = CU_TR_FILTER_MODE_LINEAR};
    make(&resource, &texture, NULL);
    end_row();
}

CASE(texture_of_linear_floats)
{
    sweep(linear(CU_AD_FORMAT_FLOAT, 1));
}

CASE(texture_of_linear_bytes)
{
    sweep(linear(CU_AD_FORMAT_UNSIGNED_INT8, 4));
}

CASE(texture_of_linear_words)
{
    sweep(linear(CU_AD_FORMAT_SIGNED_INT32, 1));
}

CASE(texture_of_pitched_floats)
{
    sweep(pitched(CU_AD_FORMAT_FLOAT, 1));
}

CASE(texture_of_pitched_bytes)
{
    sweep(pitched(CU_AD_FORMAT_UNSIGNED_INT8, 1));
}

CASE(texture_of_pitched_words)
{
    sweep(pitched(CU_AD_FORMAT_UNSIGNED_INT32, 1));
}

CASE(texture_of_floats_in_a_row)
{
    sweep(array(CU_AD_FORMAT_FLOAT, 16, 0, 0, 0));
}

CASE(texture_of_floats)
{
    sweep(array(CU_AD_FORMAT_FLOAT, 16, 16, 0, 0));
}

CASE(texture_of_bytes)
{
    sweep(array(CU_AD_FORMAT_UNSIGNED_INT8, 16, 16, 0, 0));
}

CASE(texture_of_words)
{
    sweep(array(CU_AD_FORMAT_SIGNED_INT32, 16, 16, 0, 0));
}

CASE(texture_of_a_solid)
{
    sweep(array(CU_AD_FORMAT_FLOAT, 16, 16, 16, 0));
}

CASE(texture_of_layers)
{
    sweep(array(CU_AD_FORMAT_FLOAT, 16, 16, 4, CUDA_ARRAY3D_LAYERED));
}

CASE(texture_of_a_cubemap)
{
    sweep(array(CU_AD_FORMAT_FLOAT, 16, 16, 6, CUDA_ARRAY3D_CUBEMAP));
}

CASE(texture_of_levels)
{
    sweep(mipmapped(CU_AD_FORMAT_FLOAT));
}

CASE(texture_of_levels_of_words)
{
    sweep(mipmapped(CU_AD_FORMAT_UNSIGNED_INT32));
}

static const unsigned int formats[] = {0, 1, 2, 3, 4, 8, 9, 10, 16, 32, 0xb0, 0xc0, 0x91, 0x7777};

/* One size of the resource at a time. */
static void vary(const char *label, const CUDA_RESOURCE_DESC *resource, size_t *size, const size_t *values,
                 unsigned int nr)
{
    const size_t before = *size;

    begin_row(label);
    for (unsigned int i = 0; i < nr; i++) {
        *size = values[i];
        make(resource, &plain, NULL);
    }
    *size = before;
    end_row();
}

CASE(texture_resources_linear)
{
    static const size_t sizes[] = {0, 1, 3, 4, BYTES - 1, BYTES, BYTES + 1, (size_t)1 << 40};
    static const size_t offsets[] = {0, 1, 4, 16, 32, 128, 256, 512};
    CUDA_RESOURCE_DESC resource = linear(CU_AD_FORMAT_FLOAT, 1);

    for (unsigned int channels = 0; channels <= 5; channels++) {
        begin_row(text("each format, of %u", channels));
        for (unsigned int i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
            CUDA_RESOURCE_DESC other = resource;

            other.res.linear.format = (CUarray_format)formats[i];
            other.res.linear.numChannels = channels;
            make(&other, &plain, NULL);
        }
        end_row();
    }
    vary("size", &resource, &resource.res.linear.sizeInBytes, sizes, sizeof(sizes) / sizeof(sizes[0]));
    begin_row("offset");
    for (unsigned int i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        CUDA_RESOURCE_DESC other = resource;

        other.res.linear.devPtr += offsets[i];
        other.res.linear.sizeInBytes = 1024;
        make(&other, &plain, NULL);
    }
    end_row();
    begin_row("no memory");
    resource.res.linear.devPtr = 0;
    make(&resource, &plain, NULL);
    end_row();
}

CASE(texture_resources_pitched)
{
    static const size_t pitches[] = {0, 16, 32, 48, 63, 64, 96, 512, 1024, (size_t)1 << 40};
    static const size_t widths[] = {0, 1, 128, 129, 131072, 131073};
    static const size_t heights[] = {0, 1, 128, 129, 65000, 65536};
    CUDA_RESOURCE_DESC resource = pitched(CU_AD_FORMAT_FLOAT, 1);

    for (unsigned int channels = 0; channels <= 5; channels++) {
        begin_row(text("each format, of %u", channels));
        for (unsigned int i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
            CUDA_RESOURCE_DESC other = resource;

            other.res.pitch2D.format = (CUarray_format)formats[i];
            other.res.pitch2D.numChannels = channels;
            make(&other, &plain, NULL);
        }
        end_row();
    }
    resource.res.pitch2D.width = 4;
    resource.res.pitch2D.height = 2;
    vary("pitch", &resource, &resource.res.pitch2D.pitchInBytes, pitches, sizeof(pitches) / sizeof(pitches[0]));
    resource.res.pitch2D.width = 16;
    resource.res.pitch2D.height = 16;
    vary("width", &resource, &resource.res.pitch2D.width, widths, sizeof(widths) / sizeof(widths[0]));
    vary("height", &resource, &resource.res.pitch2D.height, heights, sizeof(heights) / sizeof(heights[0]));
}

CASE(texture_views)
{
    const CUDA_RESOURCE_DESC floats = array(CU_AD_FORMAT_FLOAT, 16, 16, 0, 0);
    const CUDA_RESOURCE_DESC levels = mipmapped(CU_AD_FORMAT_FLOAT);
    const CUDA_RESOURCE_DESC layers = array(CU_AD_FORMAT_FLOAT, 16, 16, 4, CUDA_ARRAY3D_LAYERED);
    const CUDA_RESOURCE_DESC in_memory = linear(CU_AD_FORMAT_FLOAT, 1);
    CUDA_RESOURCE_VIEW_DESC view;

    begin_row("each format");
    for (unsigned int format = 0; format <= 36; format++) {
        view = (CUDA_RESOURCE_VIEW_DESC){.format = (CUresourceViewFormat)format, .width = 16, .height = 16};
        make(&floats, &plain, &view);
    }
    end_row();
    begin_row("sizes");
    for (unsigned int i = 0; i < 4; i++) {
        view = (CUDA_RESOURCE_VIEW_DESC){
            .format = CU_RES_VIEW_FORMAT_FLOAT_1X32, .width = (size_t[]){0, 8, 16, 17}[i], .height = 16};
        make(&floats, &plain, &view);
    }
    end_row();
    begin_row("levels");
    for (unsigned int i = 0; i < 5; i++) {
        view = (CUDA_RESOURCE_VIEW_DESC){.format = CU_RES_VIEW_FORMAT_FLOAT_1X32,
                                         .width = 16,
                                         .height = 16,
                                         .firstMipmapLevel = (unsigned int[]){0, 0, 1, 3, 2}[i],
                                         .lastMipmapLevel = (unsigned int[]){3, 4, 2, 3, 1}[i]};
        make(&levels, &plain, &view);
    }
    end_row();
    begin_row("layers");
    for (unsigned int i = 0; i < 4; i++) {
        view = (CUDA_RESOURCE_VIEW_DESC){.format = CU_RES_VIEW_FORMAT_FLOAT_1X32,
                                         .width = 16,
                                         .height = 16,
                                         .depth = 4,
                                         .firstLayer = (unsigned int[]){0, 1, 0, 2}[i],
                                         .lastLayer = (unsigned int[]){3, 2, 4, 1}[i]};
        make(&layers, &plain, &view);
    }
    end_row();
    begin_row("of linear memory");
    view = (CUDA_RESOURCE_VIEW_DESC){.format = CU_RES_VIEW_FORMAT_FLOAT_1X32, .width = 16};
    make(&in_memory, &plain, &view);
    end_row();
}

CASE(surface_forms)
{
    CUDA_RESOURCE_DESC resources[] = {
        array(CU_AD_FORMAT_FLOAT, 16, 16, 0, CUDA_ARRAY3D_SURFACE_LDST),
        array(CU_AD_FORMAT_FLOAT, 16, 16, 0, 0),
        array(CU_AD_FORMAT_FLOAT, 16, 16, 4, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST),
        linear(CU_AD_FORMAT_FLOAT, 1),
        pitched(CU_AD_FORMAT_FLOAT, 1),
        mipmapped(CU_AD_FORMAT_FLOAT),
        array(CU_AD_FORMAT_FLOAT, 16, 16, 0, CUDA_ARRAY3D_SURFACE_LDST)};

    resources[6].flags = 1;
    begin_row("each resource, and one with a flag");
    for (unsigned int i = 0; i < 7; i++) {
        CUsurfObject object = 0;
        CUresult result = CU(cuSurfObjectCreate)(&object, &resources[i]);

        add(result);
        if (result == CUDA_SUCCESS) {
            MUST(cuSurfObjectDestroy, object);
        }
    }
    end_row();
}
