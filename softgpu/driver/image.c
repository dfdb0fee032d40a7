/* From an image to code in this process. Two modules made of one image share the code; each has globals of its own. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compile.h"
#include "cuda_api/fatbin.h"
#include "driver.h"
#include "loading.h"

static bool kernel_is_sound(const struct sgp_kernel *kernel)
{
    return kernel->name && (kernel->needs_threads ? !!kernel->run_thread : !!kernel->run_block) &&
           kernel->parameters_bytes <= 65536 && kernel->static_shared_bytes <= SGP_MAX_STATIC_SHARED_BYTES &&
           kernel->stack_bytes <= (64u << 20);
}

static CUresult image_open(const char *path, struct sgp_image *image)
{
    image->shared_object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!image->shared_object) {
        sgp_log("compile", "cannot load %s: %s", path, dlerror());
        return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
    }
    image->module = dlsym(image->shared_object, SGP_MODULE_SYMBOL);
    if (!image->module || image->module->abi_version != SGP_ABI_VERSION) {
        sgp_log("compile", "%s was made for another version of softgpu", path);
        return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
    }
    for (uint32_t i = 0; i < image->module->nr_kernels; i++)
        if (!kernel_is_sound(&image->module->kernels[i])) {
            sgp_log("compile", "%s: kernel %s asks for more than the device has", path, image->module->kernels[i].name);
            return CUDA_ERROR_INVALID_IMAGE;
        }
    return CUDA_SUCCESS;
}

CUresult sgp_set_append(struct sgp_image_set *set, const void *image, size_t bytes)
{
    size_t offset = fgv_set_offset(set->bytes);
    uint8_t *grown = bytes > FGV_IMAGE_MAX_BYTES - offset ? NULL : realloc(set->start, offset + bytes);

    if (!grown)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(grown + set->bytes, 0, offset - set->bytes);
    memcpy(grown + offset, image, bytes);
    *set = (struct sgp_image_set){.start = grown, .bytes = offset + bytes};
    return CUDA_SUCCESS;
}

/* What the fat binary behind the wrapper was linked from: its own machine code is for GPUs. */
static CUresult compile_prelinked(const void *const *list, uint32_t nr, char path[PATH_MAX], char *error_text,
                                  size_t error_text_bytes)
{
    struct sgp_image_set set = {0};
    CUresult result = CUDA_SUCCESS;

    for (uint32_t i = 0; i < nr && !result; i++) {
        enum fgv_image_kind kind;
        size_t bytes;

        result = fgv_image_measure(list[i], FGV_IMAGE_MAX_BYTES, &bytes, &kind);
        if (!result)
            result = kind == FGV_IMAGE_FATBIN ? sgp_set_append(&set, list[i], bytes) : CUDA_ERROR_INVALID_IMAGE;
    }
    if (!result)
        result = sgp_compile(set.start, set.bytes, path, error_text, error_text_bytes);
    free(set.start);
    return result;
}

static CUresult compile_one(const void *image, char path[PATH_MAX], char *error_text, size_t error_text_bytes)
{
    enum fgv_image_kind kind;
    size_t bytes;
    CUresult result = fgv_image_bytes(image, &bytes, &kind);

    if (result)
        return result;
    if (kind == FGV_IMAGE_ELF)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    return sgp_compile(fgv_image_start(image), bytes, path, error_text, error_text_bytes);
}

CUresult sgp_image_load(const void *data, struct sgp_image **image, char *error_text, size_t error_text_bytes)
{
    const void *const *prelinked;
    char path[PATH_MAX];
    uint32_t nr_prelinked;
    CUresult result = fgv_image_prelinked(data, &prelinked, &nr_prelinked);

    if (!result)
        result = nr_prelinked ? compile_prelinked(prelinked, nr_prelinked, path, error_text, error_text_bytes)
                              : compile_one(data, path, error_text, error_text_bytes);
    if (result)
        return result;
    *image = calloc(1, sizeof(**image));
    if (!*image)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*image)->nr_references = 1;
    result = image_open(path, *image);
    if (result)
        sgp_image_release(*image);
    return result;
}

void sgp_image_release(struct sgp_image *image)
{
    if (--image->nr_references)
        return;
    if (image->shared_object)
        dlclose(image->shared_object);
    free(image);
}
