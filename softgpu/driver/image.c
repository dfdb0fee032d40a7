/* From an image to code in this process. Two modules made of one image share the code; each has globals of its own. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compile.h"
#include "cuda_api/fatbin.h"
#include "driver.h"

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

CUresult sgp_image_load(const void *data, struct sgp_image **image, char *error_text, size_t error_text_bytes)
{
    const void *start = fgv_image_start(data);
    enum fgv_image_kind kind;
    char path[PATH_MAX];
    size_t bytes;
    CUresult result;

    if (!start)
        return CUDA_ERROR_INVALID_IMAGE;
    result = fgv_image_measure(start, FGV_IMAGE_MAX_BYTES, &bytes, &kind);
    if (result)
        return result;
    if (kind == FGV_IMAGE_ELF)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    result = sgp_compile(start, bytes, path, error_text, error_text_bytes);
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
