/*
 * cuLink. The worker holds the link; the program's log buffers are filled here after each call, from what it sends
 * back, and what cuLinkComplete made is fetched whole, for the program may read it until the link is destroyed.
 */
#include <stdlib.h>
#include <string.h>

#include "call/call.h"
#include "call/chunks.h"
#include "code/image.h"
#include "code/jit.h"
#include "cuda_api/fatbin.h"
#include "cuda_api/prototypes.h"
#include "generated/hooks.h"
#include "region/client.h"

struct link {
    struct fgv_jit jit;
    void *image;
};

/* What the driver said, into the program's buffers. */
static CUresult answer_take(const struct link *link, const struct fgv_jit_said *said, uint32_t chunk)
{
    fgv_jit_fill(&link->jit, said, chunk);
    return (CUresult)said->verdict;
}

static CUresult create(const struct link *link, const struct fgv_jit_pairs *taken, uint64_t handle)
{
    struct fgv_call call;
    uint32_t pairs_bytes = taken->nr * (uint32_t)sizeof(taken->pairs[0]);
    struct fgv_request_cuLinkCreate_v2 *request =
        fgv_call_begin(&call, FGV_CALL_cuLinkCreate_v2, sizeof(*request), pairs_bytes);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuLinkCreate_v2){
        .link = handle,
        .nr_options = taken->nr,
        .info_bytes = fgv_jit_log_bytes(&link->jit, 0),
        .error_bytes = fgv_jit_log_bytes(&link->jit, 1),
    };
    memcpy(call.payload, taken->pairs, pairs_bytes);
    return fgv_call_wait(&call, NULL, 0);
}

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues, CUlinkState *stateOut)
{
    struct fgv_jit_pairs taken;
    uint64_t handle;
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct link *link = !stateOut ? NULL : calloc(1, sizeof(*link));
    if (!link) {
        return !stateOut ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = fgv_jit_take(&link->jit, &taken, numOptions, options, optionValues);
    if (result == CUDA_SUCCESS) {
        result = fgv_handle_new(FGV_HANDLE_LINK, &handle);
    }
    if (result != CUDA_SUCCESS) {
        free(link);
        return result;
    }
    result = create(link, &taken, handle);
    if (result != CUDA_SUCCESS) {
        fgv_handle_drop(FGV_HANDLE_LINK, handle);
        free(link);
        return result;
    }
    fgv_jit_clear(&link->jit);
    fgv_handle_set_object(FGV_HANDLE_LINK, handle, link);
    *stateOut = (CUlinkState)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

static CUresult link_find(CUlinkState state, struct link **link)
{
    CUresult result = fgv_call_allowed();
    *link = fgv_handle_object(FGV_HANDLE_LINK, (uint64_t)(uintptr_t)state);
    return result == CUDA_SUCCESS && !*link ? CUDA_ERROR_INVALID_HANDLE : result;
}

static CUresult add(const struct link *link, const struct fgv_request_cuLinkAddData_v2 *values,
                    const struct fgv_jit_pairs *taken, const char *name)
{
    struct fgv_call call;
    struct fgv_reply_cuLinkAddData_v2 reply;
    uint32_t pairs_bytes = taken->nr * (uint32_t)sizeof(taken->pairs[0]);
    struct fgv_request_cuLinkAddData_v2 *request =
        fgv_call_begin(&call, FGV_CALL_cuLinkAddData_v2, sizeof(*request), pairs_bytes + values->name_bytes);
    if (!request) {
        return call.error;
    }
    *request = *values;
    memcpy(call.payload, taken->pairs, pairs_bytes);
    memcpy(call.payload + pairs_bytes, name, values->name_bytes);
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    return result == CUDA_SUCCESS ? answer_take(link, &reply.said, values->chunk) : result;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                          unsigned int numOptions, CUjit_option *options, void **optionValues)
{
    struct fgv_jit_pairs taken;
    struct link *link;
    struct fgv_request_cuLinkAddData_v2 values = {.link = (uint64_t)(uintptr_t)state, .type = (uint32_t)type};
    CUresult result = link_find(state, &link);
    if (result == CUDA_SUCCESS && (!data || size == 0 || (unsigned)type >= CU_JIT_NUM_INPUT_TYPES)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = fgv_jit_take(NULL, &taken, numOptions, options, optionValues);
    }
    if (result == CUDA_SUCCESS) {
        result = fgv_blob_send(data, size, &values.blob);
    }
    if (result == CUDA_SUCCESS) {
        result = fgv_chunk_take(&values.chunk);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    name = !name ? "" : name;
    values.name_bytes = (uint32_t)strnlen(name, FGV_MAX_LINK_NAME_BYTES);
    values.nr_options = taken.nr;
    result = add(link, &values, &taken, name);
    fgv_chunk_give(values.chunk);
    return result;
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
                          CUjit_option *options, void **optionValues)
{
    struct link *link;
    size_t nr_bytes;
    CUresult result = link_find(state, &link);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!path) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint8_t *content = fgv_file_read(path, &nr_bytes);
    if (!content) {
        return CUDA_ERROR_FILE_NOT_FOUND;
    }
    result = cuLinkAddData_v2(state, type, content, nr_bytes, path, numOptions, options, optionValues);
    free(content);
    return result;
}

static CUresult piece_read(uint64_t handle, uint64_t offset, uint8_t *to, uint32_t nr_bytes, uint32_t chunk)
{
    struct fgv_call call;
    struct fgv_request_link_read *request = fgv_call_begin(&call, FGV_CALL_link_read, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_link_read){.link = handle, .offset = offset, .bytes = nr_bytes, .chunk = chunk};
    CUresult result = fgv_call_wait(&call, NULL, 0);
    if (result == CUDA_SUCCESS) {
        memcpy(to, fgv_chunk_memory(chunk), nr_bytes);
    }
    return result;
}

/* What the link made, all of it. */
static CUresult image_read(struct link *link, uint64_t handle, uint64_t nr_bytes, uint32_t chunk)
{
    uint8_t *image = nr_bytes > FGV_IMAGE_MAX_BYTES ? NULL : malloc(nr_bytes + 1);
    if (!image) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; done < nr_bytes && result == CUDA_SUCCESS;) {
        uint64_t left = nr_bytes - done;
        uint32_t some_bytes = left < fgv_guest.chunk_bytes ? (uint32_t)left : fgv_guest.chunk_bytes;
        result = piece_read(handle, done, image + done, some_bytes, chunk);
        done += some_bytes;
    }
    if (result == CUDA_SUCCESS) {
        link->image = image;
    } else {
        free(image);
    }
    return result;
}

static CUresult complete(struct link *link, uint64_t handle, uint32_t chunk, size_t *nr_bytes)
{
    struct fgv_call call;
    struct fgv_reply_cuLinkComplete reply;
    struct fgv_request_cuLinkComplete *request = fgv_call_begin(&call, FGV_CALL_cuLinkComplete, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuLinkComplete){.link = handle, .chunk = chunk};
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = answer_take(link, &reply.said, chunk);
    *nr_bytes = reply.image_bytes;
    return result == CUDA_SUCCESS ? image_read(link, handle, reply.image_bytes, chunk) : result;
}

CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
    struct link *link;
    uint32_t chunk;
    size_t nr_bytes = 0;
    CUresult result = link_find(state, &link);
    if (result == CUDA_SUCCESS && !cubinOut) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = fgv_chunk_take(&chunk);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = complete(link, (uint64_t)(uintptr_t)state, chunk, &nr_bytes);
    fgv_chunk_give(chunk);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *cubinOut = link->image;
    if (sizeOut) {
        *sizeOut = nr_bytes;
    }
    return CUDA_SUCCESS;
}

void fgv_after_cuLinkDestroy(CUresult result, CUlinkState state)
{
    (void)result;
    struct link *link = fgv_handle_object(FGV_HANDLE_LINK, (uint64_t)(uintptr_t)state);
    if (!link) {
        return;
    }
    free(link->image);
    free(link);
}
