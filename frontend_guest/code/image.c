/*
 * Shipping an image: a fat binary, a cubin or PTX goes to the worker piece by piece, and is loaded there once it is
 * whole.
 *
 * What the program passes has no length; cuda_api/fatbin.h finds it. Of a fat binary only what the devices can use is
 * sent (image_cut.h), which of a library for many architectures is a small part.
 *
 * Each load sends its image, even if an earlier one sent the same: to know that it is the same, both ends would have to
 * hash it, which takes longer than to copy it.
 */
#include "code/image.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "call/call.h"
#include "call/chunks.h"
#include "code/code.h"
#include "code/image_cut.h"
#include "code/jit.h"
#include "cuda_api/fatbin.h"
#include "region/client.h"

#define INLINE_MAX_BYTES 32768u

_Static_assert(sizeof(struct fgv_request_cuModuleLoadDataEx) == sizeof(struct fgv_request_cuLibraryLoadData),
               "same request");
_Static_assert(sizeof(struct fgv_reply_cuModuleLoadDataEx) == sizeof(struct fgv_reply_cuLibraryLoadData), "same reply");
_Static_assert(FGV_FACTS_MAX_DEVICES <= FGV_FATBIN_MAX_DEVICES, "a choice for all devices");

static _Atomic uint64_t last_blob;

static CUresult append_inline(uint64_t blob, uint64_t offset, const uint8_t *bytes, uint32_t nr_bytes)
{
    struct fgv_call call;
    struct fgv_request_blob_append *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_blob_append, sizeof(*request), nr_bytes);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_blob_append){
        .blob = blob, .offset = offset, .bytes = nr_bytes, .place = FGV_PLACE_INLINE, .chunk = FGV_NO_CHUNK};
    memcpy(call.payload, bytes, nr_bytes);
    return fgv_call_post(&call);
}

static CUresult append_chunk(uint64_t blob, uint64_t offset, const uint8_t *bytes, uint32_t nr_bytes)
{
    uint32_t chunk;
    CUresult result = fgv_chunk_take(&chunk);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memcpy(fgv_chunk_memory(chunk), bytes, nr_bytes);
    fgv_count(FGV_COUNT_REQUEST_BYTES, nr_bytes);
    fgv_chunk_arm(chunk);
    struct fgv_call call;
    struct fgv_request_blob_append *request = fgv_call_begin_anywhere(&call, FGV_CALL_blob_append, sizeof(*request), 0);
    if (!request) {
        fgv_chunk_give(chunk);
        return call.error;
    }
    *request = (struct fgv_request_blob_append){.blob = blob,
                                                .offset = offset,
                                                .source = fgv_chunk_offset(chunk),
                                                .bytes = nr_bytes,
                                                .place = FGV_PLACE_ARENA,
                                                .chunk = chunk};
    fgv_call_post(&call);
    fgv_chunk_leave_behind(chunk);
    return CUDA_SUCCESS;
}

static CUresult blob_begin(uint64_t blob, uint64_t nr_bytes)
{
    struct fgv_call call;
    struct fgv_request_blob_begin *request = fgv_call_begin_anywhere(&call, FGV_CALL_blob_begin, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_blob_begin){.blob = blob, .bytes = nr_bytes};
    return fgv_call_post(&call);
}

/* The bytes of a blob from `begin` on. */
static CUresult blob_append(uint64_t blob, uint64_t begin, const uint8_t *bytes, uint64_t nr_bytes)
{
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; done < nr_bytes && result == CUDA_SUCCESS;) {
        uint64_t left = nr_bytes - done;
        uint32_t some_bytes = left < fgv_guest.chunk_bytes ? (uint32_t)left : fgv_guest.chunk_bytes;
        result = left <= INLINE_MAX_BYTES ? append_inline(blob, begin + done, bytes + done, (uint32_t)left)
                                          : append_chunk(blob, begin + done, bytes + done, some_bytes);
        done += left <= INLINE_MAX_BYTES ? left : some_bytes;
    }
    return result;
}

CUresult fgv_blob_send(const void *bytes, uint64_t nr_bytes, uint64_t *blob)
{
    *blob = atomic_fetch_add_explicit(&last_blob, 1, memory_order_relaxed) + 1;
    CUresult result = blob_begin(*blob, nr_bytes);
    return result != CUDA_SUCCESS ? result : blob_append(*blob, 0, bytes, nr_bytes);
}

/* Where the images of a set lie in the blob: the fat binary behind the wrapper, then those that it was linked from. */
struct image_set {
    uint32_t nr_prelinked;
    const void *const *prelinked;
    const uint8_t *start;
    uint64_t start_bytes;
    uint64_t bytes; /* of all that is sent */
    enum fgv_image_kind kind;
    bool is_cut;
    struct fgv_image_cut cut;
};

static CUresult set_measure(const void *image, struct image_set *set)
{
    enum fgv_image_kind kind;
    size_t nr_bytes;
    CUresult result = fgv_image_bytes(image, &nr_bytes, &kind);
    if (result == CUDA_SUCCESS) {
        result = fgv_image_prelinked(image, &set->prelinked, &set->nr_prelinked);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    set->start = fgv_image_start(image);
    set->start_bytes = set->bytes = nr_bytes;
    set->kind = kind;
    set->is_cut = false;
    for (uint32_t i = 0; i < set->nr_prelinked && result == CUDA_SUCCESS; i++) {
        result = fgv_image_bytes(set->prelinked[i], &nr_bytes, &kind);
        set->bytes = fgv_set_offset(set->bytes) + nr_bytes;
    }
    return result;
}

/* The devices' compute capabilities as fat binaries spell them, 90 for 9.0. */
static uint32_t capabilities_of_devices(uint32_t capabilities[FGV_FACTS_MAX_DEVICES])
{
    uint32_t nr = 0;
    for (; nr < fgv_guest.facts.nr_devices && nr < FGV_FACTS_MAX_DEVICES; nr++) {
        const int32_t *attributes = fgv_guest.facts.devices[nr].attributes;
        int32_t major = attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
        int32_t minor = attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
        capabilities[nr] = major >= 0 && minor >= 0 ? (uint32_t)major * 10 + (uint32_t)minor : 0;
    }
    return nr;
}

/*
 * Leaves out what the devices cannot use. Not of a set: when a driver takes the linked code and when it links anew,
 * from what, is nowhere said. Nor where the program itself names the device that it wants code for.
 */
static void set_cut(struct image_set *set, const struct fgv_jit_pairs *options)
{
    uint32_t capabilities[FGV_FACTS_MAX_DEVICES];
    for (uint32_t i = 0; i < options->nr; i++) {
        if (options->pairs[i][0] == CU_JIT_TARGET) {
            return;
        }
    }
    if (set->kind != FGV_IMAGE_FATBIN || set->nr_prelinked > 0 ||
        !fgv_image_cut(&set->cut, set->start, capabilities, capabilities_of_devices(capabilities))) {
        return;
    }
    set->is_cut = true;
    set->bytes = sizeof(set->cut.header) + set->cut.header.entries_bytes;
}

static CUresult cut_append(uint64_t blob, const struct fgv_image_cut *cut)
{
    uint64_t end = sizeof(cut->header), nr_bytes;
    const uint8_t *run;
    CUresult result = blob_append(blob, 0, (const uint8_t *)&cut->header, sizeof(cut->header));
    for (uint64_t offset = 0; result == CUDA_SUCCESS && (nr_bytes = fgv_image_cut_next(cut, &offset, &run)) > 0;) {
        result = blob_append(blob, end, run, nr_bytes);
        end += nr_bytes;
    }
    return result;
}

static CUresult set_send(const struct image_set *set, uint64_t *blob)
{
    static const uint8_t padding[FGV_SET_ALIGNMENT_BYTES] = {0};
    *blob = atomic_fetch_add_explicit(&last_blob, 1, memory_order_relaxed) + 1;
    CUresult result = blob_begin(*blob, set->bytes);
    if (result == CUDA_SUCCESS) {
        result = set->is_cut ? cut_append(*blob, &set->cut) : blob_append(*blob, 0, set->start, set->start_bytes);
    }
    uint64_t end = set->start_bytes;
    for (uint32_t i = 0; i < set->nr_prelinked && result == CUDA_SUCCESS; i++) {
        enum fgv_image_kind kind;
        size_t nr_bytes;
        uint64_t offset = fgv_set_offset(end);
        result = fgv_image_bytes(set->prelinked[i], &nr_bytes, &kind);
        if (result == CUDA_SUCCESS) {
            result = blob_append(*blob, end, padding, offset - end);
        }
        if (result == CUDA_SUCCESS) {
            result = blob_append(*blob, offset, set->prelinked[i], nr_bytes);
        }
        end = offset + nr_bytes;
    }
    return result;
}

/* The program's options, and the chunk that the logs come back in; FGV_NO_CHUNK without options. */
struct jit {
    struct fgv_jit answers;
    struct fgv_jit_pairs pairs;
    uint32_t chunk;
};

static CUresult load_ask(uint16_t number, const struct fgv_request_cuModuleLoadDataEx *values, const struct jit *jit)
{
    const uint32_t pairs_bytes = jit->pairs.nr * (uint32_t)sizeof(jit->pairs.pairs[0]);
    struct fgv_call call;
    struct fgv_reply_cuModuleLoadDataEx reply;
    struct fgv_request_cuModuleLoadDataEx *request =
        fgv_call_begin_anywhere(&call, number, sizeof(*request), pairs_bytes);
    if (!request) {
        return call.error;
    }
    *request = *values;
    memcpy(call.payload, jit->pairs.pairs, pairs_bytes);
    const bool has_logs = jit->chunk != FGV_NO_CHUNK;
    CUresult result = fgv_call_wait(&call, &reply, has_logs ? sizeof(reply) : 0);
    if (result != CUDA_SUCCESS || !has_logs) {
        return result;
    }
    fgv_jit_fill(&jit->answers, &reply.said, jit->chunk);
    return (CUresult)reply.said.verdict;
}

static CUresult load(enum fgv_handle_kind kind, const struct image_set *set, const struct jit *jit, uint64_t *handle)
{
    uint64_t blob;
    CUresult result = fgv_handle_new(kind, handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = set_send(set, &blob);
    if (result == CUDA_SUCCESS) {
        const struct fgv_request_cuModuleLoadDataEx request = {
            .blob = blob,
            .handle = *handle,
            .prelinked = set->nr_prelinked,
            .nr_options = jit->pairs.nr,
            .info_bytes = fgv_jit_log_bytes(&jit->answers, 0),
            .error_bytes = fgv_jit_log_bytes(&jit->answers, 1),
            .chunk = jit->chunk,
            .is_eager = fgv_code_is_eager(),
        };
        result = load_ask(kind == FGV_HANDLE_LIBRARY ? FGV_CALL_cuLibraryLoadData : FGV_CALL_cuModuleLoadDataEx,
                          &request, jit);
    }
    if (result == CUDA_SUCCESS && !fgv_code_make(kind, *handle)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        fgv_handle_drop(kind, *handle);
    }
    return result;
}

CUresult fgv_image_load(enum fgv_handle_kind kind, const void *image, const struct fgv_jit_options *options,
                        uint64_t *handle)
{
    struct image_set set;
    struct jit jit = {.chunk = FGV_NO_CHUNK};
    CUresult result = fgv_code_allowed(kind);
    if (result == CUDA_SUCCESS) {
        result = fgv_jit_take(&jit.answers, &jit.pairs, options->nr, options->options, options->values);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    fgv_jit_clear(&jit.answers);
    result = set_measure(image, &set);
    if (result == CUDA_SUCCESS) {
        result = fgv_client_await();
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    set_cut(&set, &jit.pairs);
    if (options->nr == 0) {
        return load(kind, &set, &jit, handle);
    }
    result = fgv_chunk_take(&jit.chunk);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = load(kind, &set, &jit, handle);
    fgv_chunk_give(jit.chunk);
    return result;
}

uint8_t *fgv_file_read(const char *path, size_t *nr_bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    *nr_bytes = 0;
    if (file < 0) {
        return NULL;
    }
    *nr_bytes = SIZE_MAX;
    off_t bytes = lseek(file, 0, SEEK_END);
    uint8_t *content = bytes >= 0 && (uint64_t)bytes < FGV_IMAGE_MAX_BYTES ? malloc((size_t)bytes + 1) : NULL;
    off_t done = 0;
    while (content && done < bytes) {
        ssize_t got = pread(file, content + done, (size_t)(bytes - done), done);
        if (got <= 0) {
            free(content);
            content = NULL;
            break;
        }
        done += got;
    }
    close(file);
    if (content) {
        content[bytes] = 0;
        *nr_bytes = (size_t)bytes;
    }
    return content;
}

CUresult fgv_image_load_file(enum fgv_handle_kind kind, const char *path, const struct fgv_jit_options *options,
                             uint64_t *handle)
{
    if (!path) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = fgv_code_allowed(kind);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    size_t nr_bytes;
    uint8_t *content = fgv_file_read(path, &nr_bytes);
    if (!content) { /* a folder, which seems to have no end, as NVIDIA's driver reads it */
        return nr_bytes == 0 ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = fgv_image_load(kind, content, options, handle);
    free(content);
    return result;
}
