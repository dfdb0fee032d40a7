/*
 * Images on their way from the guest to the driver.
 *
 * An image arrives in pieces and is gathered in private memory of bounded size before the driver sees it: the driver
 * reads as far as the image says, so the image is measured first. It is freed after the load; drivers keep what they
 * need. Whether it prints, and its PTX for variants, is looked up in the same place.
 */
#include "calls/image.h"

#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "calls/eager.h"
#include "calls/image_memory.h"
#include "calls/jit.h"
#include "calls/kept_image.h"
#include "calls/lack.h"
#include "calls/space.h"
#include "calls/state.h"
#include "client/arena.h"
#include "client/handles.h"
#include "client/printing.h"
#include "client/service.h"
#include "client/state.h"
#include "cuda_api/fatbin.h"
#include "ivshmem/response.h"
#include "page/account.h"
#include "page/layout.h"
#include "parts/variant.h"

_Static_assert(sizeof(struct fgv_request_cuModuleLoadDataEx) == sizeof(struct fgv_request_cuLibraryLoadData) &&
                   sizeof(struct fgv_reply_cuModuleLoadDataEx) == sizeof(struct fgv_reply_cuLibraryLoadData),
               "one shape for both");

static struct fgw_blob *find_blob(struct fgw_worker *worker, uint64_t number)
{
    for (uint32_t i = 0; i < FGW_MAX_BLOBS; i++) {
        if (worker->calls->blobs[i].bytes && worker->calls->blobs[i].number == number) {
            return &worker->calls->blobs[i];
        }
    }
    return NULL;
}

/* Its bytes are another's. */
static void give_blob_away(struct fgw_worker *worker, struct fgw_blob *blob)
{
    fgw_limit_give(&worker->grantee, FGW_LIMITED_IMAGE_BYTES, blob->size_bytes);
    *blob = (struct fgw_blob){0};
}

static void free_blob(struct fgw_worker *worker, struct fgw_blob *blob)
{
    free(blob->bytes);
    give_blob_away(worker, blob);
}

void fgw_blobs_free(struct fgw_worker *worker)
{
    for (uint32_t i = 0; i < FGW_MAX_BLOBS; i++) {
        if (worker->calls->blobs[i].bytes) {
            free_blob(worker, &worker->calls->blobs[i]);
        }
    }
}

CUresult fgw_serve_blob_begin(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_blob_begin *fixed = request->fixed;
    (void)reply;
    struct fgw_blob *old = find_blob(worker, fixed->blob);
    if (old) {
        free_blob(worker, old);
    }
    uint32_t place = 0;
    while (place < FGW_MAX_BLOBS && worker->calls->blobs[place].bytes) {
        place++;
    }
    if (place == FGW_MAX_BLOBS || fixed->bytes == 0 || fixed->bytes > FGV_IMAGE_MAX_BYTES ||
        !fgw_limit_take(&worker->grantee, FGW_LIMITED_IMAGE_BYTES, fixed->bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint8_t *bytes = malloc(fixed->bytes + 1); /* a text without its end gets one */
    if (!bytes) {
        fgw_limit_give(&worker->grantee, FGW_LIMITED_IMAGE_BYTES, fixed->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bytes[fixed->bytes] = 0;
    worker->calls->blobs[place] = (struct fgw_blob){.number = fixed->blob, .bytes = bytes, .size_bytes = fixed->bytes};
    return CUDA_SUCCESS;
}

CUresult fgw_serve_blob_append(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_blob_append *fixed = request->fixed;
    (void)reply;
    struct fgw_blob *blob = find_blob(worker, fixed->blob);
    const uint8_t *source = NULL;
    if (fixed->place == FGV_PLACE_INLINE && fixed->bytes == request->payload_bytes) {
        source = request->payload;
    } else if (fixed->place == FGV_PLACE_ARENA) {
        source = fgw_arena_at(worker, fixed->source, fixed->bytes);
    }
    if (!blob || !source || fixed->offset != blob->filled_bytes ||
        fixed->bytes > blob->size_bytes - blob->filled_bytes) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(blob->bytes + fixed->offset, source, fixed->bytes);
    blob->filled_bytes += fixed->bytes;
    return CUDA_SUCCESS;
}

struct fgw_blob *fgw_blob_complete(struct fgw_worker *worker, uint64_t number)
{
    struct fgw_blob *blob = find_blob(worker, number);
    return blob && blob->filled_bytes == blob->size_bytes ? blob : NULL;
}

CUresult fgw_blob_measure(const struct fgw_blob *blob, enum fgv_image_kind *kind)
{
    size_t image_bytes = 0;
    CUresult result = fgv_image_measure(blob->bytes, blob->size_bytes + 1, &image_bytes, kind);
    return result == CUDA_SUCCESS && image_bytes > blob->size_bytes + 1 ? CUDA_ERROR_INVALID_IMAGE : result;
}

/* An image that the driver may read: of a known kind, no longer than what came, and no wrapper, which would be a
 * pointer of the guest's. */
static CUresult check_image(struct fgw_worker *worker, const struct fgw_blob *blob, uint64_t *needs_bytes)
{
    enum fgv_image_kind kind;
    CUresult result = fgw_blob_measure(blob, &kind);
    if (result == CUDA_SUCCESS) {
        result = fgw_space_check_image(worker, blob->bytes, blob->size_bytes);
    }
    if (result == CUDA_SUCCESS) {
        fgw_printing_note_image(worker, blob->bytes, blob->size_bytes);
        *needs_bytes = fgw_image_needs(worker, blob->bytes, blob->size_bytes);
    }
    return result;
}

/* The wrapper that a program of separately compiled files registers, rebuilt around fat binaries in the blob. */
struct rebuilt {
    struct fgv_fatbin_wrapper wrapper;
    const void *images[FGV_MAX_PRELINKED + 2]; /* the linked one, those it was linked from, NULL */
};

/* CUDA_SUCCESS when the blob is as many fat binaries as the guest says, one behind the other, and nothing else. */
static CUresult rebuild(struct fgw_worker *worker, const struct fgw_blob *blob, uint32_t nr_prelinked,
                        struct rebuilt *rebuilt, uint64_t *needs_bytes)
{
    uint64_t end = 0;
    uint64_t needs_of_parts_bytes = 0;
    for (uint32_t i = 0; i <= nr_prelinked; i++) {
        uint64_t offset = fgv_set_offset(end);
        size_t bytes;
        enum fgv_image_kind kind;
        if (offset >= blob->size_bytes ||
            fgv_image_measure(blob->bytes + offset, blob->size_bytes - offset, &bytes, &kind) != CUDA_SUCCESS ||
            kind != FGV_IMAGE_FATBIN) {
            return CUDA_ERROR_INVALID_IMAGE;
        }
        const CUresult result = fgw_space_check_image(worker, blob->bytes + offset, bytes);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        fgw_printing_note_image(worker, blob->bytes + offset, bytes);
        const uint64_t bytes_of_this = fgw_image_needs(worker, blob->bytes + offset, bytes);
        if (i == 0) {
            *needs_bytes = bytes_of_this;
        } else if (__builtin_add_overflow(needs_of_parts_bytes, bytes_of_this, &needs_of_parts_bytes)) {
            return CUDA_ERROR_INVALID_IMAGE;
        }
        rebuilt->images[i] = blob->bytes + offset;
        end = offset + bytes;
    }
    /* It is as it was linked, or, for another GPU, all that it was linked from. */
    *needs_bytes = *needs_bytes > needs_of_parts_bytes ? *needs_bytes : needs_of_parts_bytes;
    rebuilt->wrapper = (struct fgv_fatbin_wrapper){.magic = FGV_FATBIN_WRAPPER_MAGIC,
                                                   .version = 2,
                                                   .data = rebuilt->images[0],
                                                   .filename_or_prelinked = &rebuilt->images[1]};
    return end == blob->size_bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

/* What the driver is given for a blob: the bytes themselves, or a wrapper, which the caller frees, around a set; and
 * what it takes of the device for it. */
static CUresult image_of(struct fgw_worker *worker, const struct fgw_blob *blob, uint32_t nr_prelinked,
                         struct rebuilt **wrapper, const void **image, uint64_t *needs_bytes)
{
    *wrapper = NULL;
    if (!blob || nr_prelinked > FGV_MAX_PRELINKED) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    *image = blob->bytes;
    if (nr_prelinked == 0) {
        return check_image(worker, blob, needs_bytes);
    }
    *wrapper = calloc(1, sizeof(**wrapper));
    *image = *wrapper;
    return *wrapper ? rebuild(worker, blob, nr_prelinked, *wrapper, needs_bytes) : CUDA_ERROR_OUT_OF_MEMORY;
}

void fgw_blob_drop(struct fgw_worker *worker, uint64_t number)
{
    struct fgw_blob *blob = find_blob(worker, number);
    if (blob) {
        free_blob(worker, blob);
    }
}

/* For variants of its kernels, and for saving them. Of a set there is nothing to keep for variants: its PTX is that of
 * single files. */
static void keep_image(struct fgw_worker *worker, enum fgv_handle_kind kind, const struct fgw_request *request)
{
    const struct fgv_request_cuModuleLoadDataEx *fixed = request->fixed;
    struct fgw_blob *blob = fgw_blob_complete(worker, fixed->blob);
    fgw_image_keep(worker, kind, fixed->handle, blob->bytes, fixed->prelinked == 0 ? blob->size_bytes : 0);
    if (fgw_kept_image_attach(worker, kind, fixed->handle, blob->bytes, blob->size_bytes, request)) {
        give_blob_away(worker, blob);
    }
}

static CUresult load_module(struct fgw_worker *worker, uint64_t number, const void *image,
                            struct fgw_jit_options *options)
{
    CUmodule module = NULL;
    CUresult result = worker->driver.cuModuleLoadDataEx ? fgw_worker_can_bind(worker, FGV_HANDLE_MODULE, number)
                                                        : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuModuleLoadDataEx(&module, image, options->nr, options->options, options->values);
    }
    return result == CUDA_SUCCESS ? fgw_worker_bind(worker, FGV_HANDLE_MODULE, number, module) : result;
}

static CUresult load_library(struct fgw_worker *worker, uint64_t number, const void *image,
                             struct fgw_jit_options *options)
{
    CUlibrary library = NULL;
    CUresult result = worker->driver.cuLibraryLoadData ? fgw_worker_can_bind(worker, FGV_HANDLE_LIBRARY, number)
                                                       : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuLibraryLoadData(&library, image, options->options, options->values, options->nr, NULL,
                                                  NULL, 0);
    }
    return result == CUDA_SUCCESS ? fgw_worker_bind(worker, FGV_HANDLE_LIBRARY, number, library) : result;
}

static void load_functions(struct fgw_worker *worker, enum fgv_handle_kind kind,
                           const struct fgv_request_cuModuleLoadDataEx *fixed)
{
    void *native;
    if (fixed->is_eager == 0 || fgw_worker_find(worker, kind, fixed->handle, &native) != CUDA_SUCCESS) {
        return;
    }
    if (kind == FGV_HANDLE_MODULE) {
        fgw_eager_load_module(worker, native);
    } else {
        fgw_eager_load_library(worker, native);
    }
}

typedef CUresult (*load_call)(struct fgw_worker *, uint64_t, const void *, struct fgw_jit_options *);

static CUresult load_charged(struct fgw_worker *worker, uint64_t number, const void *image,
                             struct fgw_jit_options *options, enum fgv_handle_kind kind, load_call call,
                             uint64_t needs_bytes)
{
    if (!fgw_image_memory_take(worker, kind, needs_bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const uint64_t said_bytes = fgw_printing_said_bytes(worker);
    const CUresult result = call(worker, number, image, options);
    if (result == CUDA_SUCCESS) {
        fgw_handle_charge(worker, kind, number, needs_bytes);
    } else {
        fgw_image_memory_give(worker, kind, needs_bytes);
        fgw_printing_pass_on(worker, said_bytes);
    }
    return result == CUDA_ERROR_OUT_OF_MEMORY ? fgw_lack_of(worker, needs_bytes) : result;
}

/* Loads with the guest's options, and says what came of it. Without options the result is the answer. The blob goes,
 * unless the request is to be served once more. */
static CUresult load(struct fgw_worker *worker, const struct fgw_request *request,
                     struct fgv_reply_cuModuleLoadDataEx *answer, enum fgv_handle_kind kind, load_call call)
{
    const struct fgv_request_cuModuleLoadDataEx *fixed = request->fixed;
    const struct fgw_jit_sizes sizes = {fixed->nr_options, {fixed->info_bytes, fixed->error_bytes}};
    struct rebuilt *wrapper = NULL;
    const void *image;
    struct fgw_jit *jit = calloc(1, fgw_jit_bytes(&sizes));
    if (!jit || !fgw_jit_init(jit, &sizes, request) ||
        request->payload_bytes != fixed->nr_options * 2 * sizeof(uint64_t)) {
        free(jit);
        return jit ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint64_t needs_bytes = 0;
    CUresult result =
        image_of(worker, fgw_blob_complete(worker, fixed->blob), fixed->prelinked, &wrapper, &image, &needs_bytes);
    if (result == CUDA_SUCCESS) {
        result = load_charged(worker, fixed->handle, image, &jit->options, kind, call, needs_bytes);
    }
    if (result == CUDA_SUCCESS) {
        keep_image(worker, kind, request);
        load_functions(worker, kind, fixed);
    }
    free(wrapper);
    if (fgw_lack_is_told(worker)) {
        free(jit);
        return result;
    }
    fgw_blob_drop(worker, fixed->blob);
    if (fixed->chunk != FGV_NO_CHUNK) {
        answer->said = fgw_jit_tell(worker, jit, result, fixed->chunk);
        result = CUDA_SUCCESS;
    }
    free(jit);
    return result;
}

CUresult fgw_serve_cuModuleLoadDataEx(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    return load(worker, request, reply, FGV_HANDLE_MODULE, load_module);
}

CUresult fgw_serve_cuLibraryLoadData(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    return load(worker, request, reply, FGV_HANDLE_LIBRARY, load_library);
}
