/*
 * cuLink. The driver keeps pointers to options, their values and the logs for as long as a link lives: they lie in one
 * record that hangs on the handle and is freed with it. Their text goes back after each call.
 */
#include "calls/link.h"

#include <stdlib.h>
#include <string.h>

#include "calls/image.h"
#include "calls/jit.h"
#include "calls/state.h"
#include "client/arena.h"
#include "client/handles.h"
#include "client/printing.h"
#include "client/service.h"
#include "client/state.h"
#include "cuda_api/fatbin.h"
#include "page/account.h"
#include "page/layout.h"

struct link {
    struct fgw_jit *jit;
    uint64_t input_bytes; /* of which the driver keeps copies */
    const uint8_t *image; /* the driver's, once complete */
    uint64_t image_bytes;
};

/* The record that hangs on a link's handle is freed as one: the options lie behind it. */
static struct link *new_link(const struct fgw_request *request, const struct fgv_request_cuLinkCreate_v2 *fixed)
{
    const struct fgw_jit_sizes sizes = {fixed->nr_options, {fixed->info_bytes, fixed->error_bytes}};
    struct link *link = calloc(1, sizeof(*link) + fgw_jit_bytes(&sizes));
    if (!link) {
        return NULL;
    }
    link->jit = (struct fgw_jit *)(link + 1);
    if (!fgw_jit_init(link->jit, &sizes, request)) {
        free(link);
        return NULL;
    }
    return link;
}

void fgw_link_release(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    const struct link *link = handle->object;
    worker->calls->nr_links--;
    fgw_limit_give(&worker->grantee, FGW_LIMITED_IMAGE_BYTES, link->input_bytes);
    free(handle->object);
}

CUresult fgw_serve_cuLinkCreate_v2(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuLinkCreate_v2 *fixed = request->fixed;
    (void)reply;
    CUlinkState native = NULL;
    if (!worker->driver.cuLinkCreate_v2) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = fgw_worker_can_bind(worker, FGV_HANDLE_LINK, fixed->link);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (worker->calls->nr_links == FGW_MAX_LINKS) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct link *link = new_link(request, fixed);
    if (!link) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = worker->driver.cuLinkCreate_v2(link->jit->options.nr, link->jit->options.options,
                                            link->jit->options.values, &native);
    if (result == CUDA_SUCCESS) {
        result = fgw_worker_bind(worker, FGV_HANDLE_LINK, fixed->link, native);
    }
    if (result != CUDA_SUCCESS) {
        free(link);
        return result;
    }
    fgw_handle_hang(worker, FGV_HANDLE_LINK, fixed->link, link);
    worker->calls->nr_links++;
    return CUDA_SUCCESS;
}

/* An input that the driver may read. Of host objects, archives and NVVM code only the driver knows the form; it is told
 * how long they are. */
static CUresult check_input(const struct link *link, const struct fgw_blob *blob, uint32_t type)
{
    static const enum fgv_image_kind kinds[] = {
        [CU_JIT_INPUT_CUBIN] = FGV_IMAGE_ELF,
        [CU_JIT_INPUT_PTX] = FGV_IMAGE_PTX,
        [CU_JIT_INPUT_FATBINARY] = FGV_IMAGE_FATBIN,
    };
    enum fgv_image_kind kind;
    if (!blob || type >= CU_JIT_NUM_INPUT_TYPES || link->image) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (type > CU_JIT_INPUT_FATBINARY) {
        return CUDA_SUCCESS;
    }
    CUresult result = fgw_blob_measure(blob, &kind);
    return result == CUDA_SUCCESS && kind != kinds[type] ? CUDA_ERROR_INVALID_IMAGE : result;
}

/* Adds a blob to a link, once name, options and bytes are found fit. */
static CUresult add_data(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuLinkAddData_v2 *fixed = request->fixed;
    struct fgv_reply_cuLinkAddData_v2 *answer = reply;
    const struct fgw_blob *blob = fgw_blob_complete(worker, fixed->blob);
    const struct fgw_handle handle = fgw_handle_find(worker, FGV_HANDLE_LINK, fixed->link);
    struct fgw_jit_options options = {0};
    char name[FGV_MAX_LINK_NAME_BYTES + 1] = {0};
    if (handle.number == 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!fgw_jit_take(request, fixed->nr_options, &options) || fixed->name_bytes > FGV_MAX_LINK_NAME_BYTES ||
        fixed->nr_options * 2 * sizeof(uint64_t) + fixed->name_bytes != request->payload_bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(name, request->payload + request->payload_bytes - fixed->name_bytes, fixed->name_bytes);
    struct link *link = handle.object;
    CUresult result = check_input(link, blob, fixed->type);
    if (result == CUDA_ERROR_INVALID_IMAGE) {
        fgw_jit_note_refusal(link->jit, name);
        answer->said = fgw_jit_tell(worker, link->jit, result, fixed->chunk);
        return CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!worker->driver.cuLinkAddData_v2) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!fgw_limit_take(&worker->grantee, FGW_LIMITED_IMAGE_BYTES, blob->size_bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const uint64_t said_bytes = fgw_printing_said_bytes(worker);
    result = worker->driver.cuLinkAddData_v2(handle.native, (CUjitInputType)fixed->type, blob->bytes, blob->size_bytes,
                                             name, options.nr, options.options, options.values);
    fgw_printing_pass_on(worker, said_bytes);
    link->input_bytes += blob->size_bytes;
    answer->said = fgw_jit_tell(worker, link->jit, result, fixed->chunk);
    return CUDA_SUCCESS;
}

CUresult fgw_serve_cuLinkAddData_v2(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuLinkAddData_v2 *fixed = request->fixed;
    CUresult result = add_data(worker, request, reply);
    fgw_blob_drop(worker, fixed->blob);
    return result;
}

CUresult fgw_serve_cuLinkComplete(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_cuLinkComplete *fixed = request->fixed;
    struct fgv_reply_cuLinkComplete *answer = reply;
    const struct fgw_handle handle = fgw_handle_find(worker, FGV_HANDLE_LINK, fixed->link);
    void *image = NULL;
    size_t image_bytes = 0;
    if (handle.number == 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct link *link = handle.object;
    if (link->image || !worker->driver.cuLinkComplete) {
        return link->image ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_SUPPORTED;
    }
    const uint64_t said_bytes = fgw_printing_said_bytes(worker);
    CUresult result = worker->driver.cuLinkComplete(handle.native, &image, &image_bytes);
    fgw_printing_pass_on(worker, said_bytes);
    if (result == CUDA_SUCCESS) {
        link->image = image;
        link->image_bytes = image_bytes;
    }
    answer->said = fgw_jit_tell(worker, link->jit, result, fixed->chunk);
    answer->image_bytes = link->image_bytes;
    return CUDA_SUCCESS;
}

CUresult fgw_serve_link_read(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_link_read *fixed = request->fixed;
    (void)reply;
    const struct fgw_handle handle = fgw_handle_find(worker, FGV_HANDLE_LINK, fixed->link);
    uint8_t *memory = fgw_arena_chunk(worker, fixed->chunk);
    if (handle.number == 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const struct link *link = handle.object;
    if (!memory || !link->image || fixed->bytes > worker->layout.chunk_bytes || fixed->offset > link->image_bytes ||
        fixed->bytes > link->image_bytes - fixed->offset) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(memory, link->image + fixed->offset, fixed->bytes);
    return CUDA_SUCCESS;
}
