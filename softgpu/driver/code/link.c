/*
 * cuLink: PTX texts and fat binaries that have PTX, made into one image.
 *
 * What comes out is PTX again, and is compiled when it is complete, so that its errors show then and loading it finds
 * it in the cache. Machine code and host objects are refused, by their name in the error log. Each input is checked
 * with those before it as it comes, as NVIDIA's driver does: a syntax error or a second definition is that call's
 * error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code/compile.h"
#include "code/loading.h"
#include "code/refusal.h"
#include "cuda_api/fatbin.h"
#include "cuda_api/prototypes.h"
#include "device/current.h"

#define ERROR_TEXT_BYTES 1024

struct CUlinkState_st {
    struct sgp_object object;
    struct sgp_image_set inputs;
    void *text;      /* once complete */
    bool is_spoiled; /* by a second definition: nothing comes of it any more, as with NVIDIA's driver */
    char *error_log;
    size_t error_log_bytes, error_log_used;
    void **error_log_size; /* where the program looks how much of it is used */
};

static const char empty_module[] = ".version 7.0\n.target sm_80\n.address_size 64\n";

static void link_destroy(void *object)
{
    struct CUlinkState_st *link = object;

    free(link->inputs.start);
    free(link->text);
    free(link);
}

/* The program's buffers stay valid, and its array of values, too, as long as the link is there. */
static void link_options(struct CUlinkState_st *link, unsigned int nr_options, const CUjit_option *options,
                         void **values)
{
    char *info_log = NULL;
    size_t info_log_bytes = 0;

    for (unsigned int i = 0; i < nr_options; i++) {
        if (options[i] == CU_JIT_INFO_LOG_BUFFER) {
            info_log = values[i];
        } else if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) {
            info_log_bytes = (uint32_t)(uintptr_t)values[i];
        } else if (options[i] == CU_JIT_ERROR_LOG_BUFFER) {
            link->error_log = values[i];
        } else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
            link->error_log_bytes = (uint32_t)(uintptr_t)values[i];
            link->error_log_size = &values[i];
        }
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES || options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ||
            options[i] == CU_JIT_WALL_TIME) {
            values[i] = NULL;
        }
    }
    if (info_log && info_log_bytes) {
        *info_log = '\0'; /* there is nothing to tell but errors */
    }
    if (link->error_log && link->error_log_bytes) {
        *link->error_log = '\0';
    }
}

/* Another line of the error log, as far as there is room. */
static void link_log(struct CUlinkState_st *link, const char *text)
{
    size_t room = link->error_log ? link->error_log_bytes - link->error_log_used : 0;
    int length;

    if (room <= 1 || !*text) {
        return;
    }
    length = snprintf(link->error_log + link->error_log_used, room, "%s%s", link->error_log_used ? "\n" : "", text);
    link->error_log_used += (size_t)length < room ? (size_t)length : room - 1;
    if (link->error_log_size) {
        *link->error_log_size = (void *)(uintptr_t)link->error_log_used;
    }
}

SGP_EXPORT CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues,
                                    CUlinkState *stateOut)
{
    struct CUlinkState_st *link;
    struct CUctx_st *context;
    CUresult result = sgp_enter(&context);

    if (result) {
        return result;
    }
    if (!stateOut || (numOptions && (!options || !optionValues))) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    link = calloc(1, sizeof(*link));
    if (!link || !sgp_object_add(link, SGP_LINK, link_destroy)) {
        free(link);
        return sgp_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    link_options(link, numOptions, options, optionValues);
    *stateOut = link;
    return sgp_leave(CUDA_SUCCESS);
}

/* Holds the link, so that it can be worked on without the lock. */
static CUresult enter_link(CUlinkState state)
{
    CUresult result = sgp_enter_object(state, SGP_LINK, CUDA_ERROR_INVALID_HANDLE);

    if (result) {
        return result;
    }
    sgp_object_keep(state);
    return sgp_leave(CUDA_SUCCESS);
}

static CUresult leave_link(CUlinkState state, CUresult result)
{
    sgp_lock();
    sgp_object_release(state);
    return sgp_leave(result);
}

static CUresult refuse(struct CUlinkState_st *link, CUjitInputType type, const char *name)
{
    static const char *const names[CU_JIT_NUM_INPUT_TYPES] = {[CU_JIT_INPUT_CUBIN] = "a cubin",
                                                              [CU_JIT_INPUT_OBJECT] = "a host object",
                                                              [CU_JIT_INPUT_LIBRARY] = "an archive",
                                                              [CU_JIT_INPUT_NVVM] = "NVVM code"};
    CUresult result = type == CU_JIT_INPUT_CUBIN ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_NOT_SUPPORTED;
    char text[ERROR_TEXT_BYTES];

    snprintf(text, sizeof(text), "'%s' is %s: softgpu links PTX, and fat binaries that have PTX", name, names[type]);
    link_log(link, text);
    sgp_log("compile", "%s", text);
    sgp_refusal_tell(result, text);
    return result;
}

/* Appends a copy that ends with a zero, which PTX may lack here. */
static CUresult append_input(struct sgp_image_set *set, CUjitInputType type, const void *data, size_t size)
{
    enum fgv_image_kind kind, wanted = type == CU_JIT_INPUT_PTX ? FGV_IMAGE_PTX : FGV_IMAGE_FATBIN;
    size_t bytes;
    char *copy = size < FGV_IMAGE_MAX_BYTES ? calloc(1, size + 1) : NULL;
    CUresult result;

    if (!copy) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(copy, data, size);
    result = fgv_image_measure(copy, size + 1, &bytes, &kind);
    if (!result) {
        result = kind == wanted ? sgp_set_append(set, copy, bytes) : CUDA_ERROR_INVALID_IMAGE;
    }
    free(copy);
    return result;
}

static CUresult link_add(struct CUlinkState_st *link, CUjitInputType type, const void *data, size_t size,
                         const char *name)
{
    char error_text[ERROR_TEXT_BYTES] = "";
    struct sgp_image_set longer = {0};
    CUresult result = CUDA_SUCCESS;

    if (link->inputs.bytes) {
        result = sgp_set_append(&longer, link->inputs.start, link->inputs.bytes);
    }
    if (!result) {
        result = append_input(&longer, type, data, size);
    }
    if (result == CUDA_ERROR_INVALID_IMAGE) {
        snprintf(error_text, sizeof(error_text), "'%s' is not what its type says", name);
    }
    if (!result) {
        result = sgp_link_check(&longer, error_text, sizeof(error_text));
    }
    link_log(link, error_text);
    sgp_refusal_tell(result, error_text);
    free(result ? longer.start : link->inputs.start);
    if (!result) {
        link->inputs = longer;
    }
    link->is_spoiled |= result == CUDA_ERROR_INVALID_SOURCE;
    return result;
}

SGP_EXPORT CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                                     unsigned int numOptions, CUjit_option *options, void **optionValues)
{
    CUresult result = enter_link(state);

    if (result) {
        return result;
    }
    if (!data || !size || (unsigned int)type >= CU_JIT_NUM_INPUT_TYPES || state->text ||
        (numOptions && (!options || !optionValues))) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY) {
        result = refuse(state, type, name ? name : "");
    } else {
        result = link_add(state, type, data, size, name ? name : "");
    }
    return leave_link(state, result);
}

SGP_EXPORT CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
                                     CUjit_option *options, void **optionValues)
{
    size_t bytes;
    void *data;
    CUresult result;

    if (!path) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = sgp_file_read(path, &data, &bytes);
    if (!result) {
        result = cuLinkAddData_v2(state, type, data, bytes, path, numOptions, options, optionValues);
    }
    free(data);
    return result;
}

/* Links, and compiles what came out into the cache. */
static CUresult link_complete(struct CUlinkState_st *link, void **text)
{
    char error_text[ERROR_TEXT_BYTES] = "";
    struct sgp_compiled compiled;
    CUresult result = CUDA_SUCCESS;

    if (link->is_spoiled) {
        result = CUDA_ERROR_INVALID_SOURCE;
    } else if (link->inputs.bytes) {
        result = sgp_link(&link->inputs, text, error_text, sizeof(error_text));
    } else if (!(*text = strdup(empty_module))) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!result) {
        result = sgp_compile(*text, strlen(*text) + 1, &compiled, error_text, sizeof(error_text));
    }
    link_log(link, error_text);
    sgp_refusal_tell(result, error_text);
    return result;
}

SGP_EXPORT CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
    void *text = NULL;
    CUresult result = enter_link(state);

    if (result) {
        return result;
    }
    if (!cubinOut) {
        return leave_link(state, CUDA_ERROR_INVALID_VALUE);
    }
    result = state->text ? CUDA_ERROR_INVALID_HANDLE : link_complete(state, &text);
    if (result) {
        free(text);
        return leave_link(state, result);
    }
    state->text = *cubinOut = text;
    if (sizeOut) {
        *sizeOut = strlen(text) + 1;
    }
    return leave_link(state, CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuLinkDestroy(CUlinkState state)
{
    CUresult result = sgp_enter_object(state, SGP_LINK, CUDA_ERROR_INVALID_HANDLE);

    if (result) {
        return result;
    }
    sgp_object_remove(state);
    sgp_object_release(state);
    return sgp_leave(CUDA_SUCCESS);
}
