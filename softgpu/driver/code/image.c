/* From an image to code in this process. Two modules made of one image share the code; each has globals of its own. */
#include "code/image.h"

#include <stdlib.h>
#include <unistd.h>

#include "code/compile.h"
#include "code/loading.h"
#include "code/refusal.h"
#include "code/tier.h"
#include "cuda_api/fatbin.h"

/* What the fat binary behind the wrapper was linked from: its own machine code is for GPUs. */
static CUresult compile_prelinked(const void *const *list, uint32_t nr, struct sgp_compiled *compiled, char *error_text,
                                  size_t error_text_bytes)
{
    struct sgp_image_set set = {0};
    CUresult result = CUDA_SUCCESS;

    for (uint32_t i = 0; i < nr && !result; i++) {
        enum fgv_image_kind kind;
        size_t bytes;

        result = fgv_image_measure(list[i], FGV_IMAGE_MAX_BYTES, &bytes, &kind);
        if (!result) {
            result = kind == FGV_IMAGE_FATBIN ? sgp_set_append(&set, list[i], bytes) : CUDA_ERROR_INVALID_IMAGE;
        }
    }
    if (!result) {
        result = sgp_compile(set.start, set.bytes, compiled, error_text, error_text_bytes);
    }
    free(set.start);
    return result;
}

static CUresult compile_one(const void *image, struct sgp_compiled *compiled, char *error_text, size_t error_text_bytes)
{
    enum fgv_image_kind kind;
    size_t bytes;
    CUresult result = fgv_image_bytes(image, &bytes, &kind);

    if (result) {
        return result;
    }
    if (sgp_image_lacks_ptx(kind, fgv_image_start(image), bytes, error_text, error_text_bytes)) {
        sgp_log("compile", "%s", error_text);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    return sgp_compile(fgv_image_start(image), bytes, compiled, error_text, error_text_bytes);
}

static CUresult image_new(const struct sgp_compiled *compiled, struct sgp_image **result_image)
{
    struct sgp_image *image = calloc(1, sizeof(*image));
    CUresult result;

    if (!image) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    image->nr_references = 1;
    result = sgp_code_open(compiled->path, &image->code);
    image->module = image->code.module;
    if (!result && *compiled->optimised && !(image->tier = sgp_tier_new(compiled->optimised))) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result) {
        sgp_image_release(image);
    } else {
        *result_image = image;
    }
    return result;
}

static CUresult load(const void *data, const void *const *prelinked, uint32_t nr_prelinked, struct sgp_image **image,
                     char *error_text, size_t error_text_bytes, bool *is_gone)
{
    struct sgp_compiled compiled;
    CUresult result = nr_prelinked ? compile_prelinked(prelinked, nr_prelinked, &compiled, error_text, error_text_bytes)
                                   : compile_one(data, &compiled, error_text, error_text_bytes);

    if (result) {
        return result;
    }
    result = image_new(&compiled, image);
    *is_gone = result && access(compiled.path, F_OK);
    return result;
}

CUresult sgp_image_load(const void *data, struct sgp_image **image, char *error_text, size_t error_text_bytes)
{
    const void *const *prelinked;
    uint32_t nr_prelinked;
    bool is_gone = false;
    CUresult result = fgv_image_prelinked(data, &prelinked, &nr_prelinked);

    if (!result) {
        result = load(data, prelinked, nr_prelinked, image, error_text, error_text_bytes, &is_gone);
    }
    /* Another process removed the object since: it made a better one, or needed the room. */
    if (is_gone) {
        result = load(data, prelinked, nr_prelinked, image, error_text, error_text_bytes, &is_gone);
    }
    sgp_refusal_tell(result, error_text);
    return result;
}

void sgp_image_release(struct sgp_image *image)
{
    if (--image->nr_references) {
        return;
    }
    sgp_tier_delete(image->tier);
    sgp_code_close(&image->code);
    free(image);
}
