/*
 * Images of modules and libraries, kept so that these can be saved and loaded again. A driver gives no image back, so
 * it is kept from the load on, or it is lost; it takes host memory that nobody else needs, so there is a limit, and
 * without one nothing is kept.
 */
#include "calls/kept_image.h"

#include <stdlib.h>
#include <string.h>

#include "calls/bound.h"
#include "calls/image_memory.h"
#include "calls/jit.h"
#include "client/handles.h"
#include "cuda_api/fatbin.h"
#include "ivshmem/response.h"
#include "parts/variant.h"

#define OWN_BLOB UINT64_MAX /* the number of the worker's own blobs */

struct option {
    uint64_t option, value;
};

struct kept {
    uint64_t serial; /* no other image has had it */
    uint8_t *image;
    uint64_t image_bytes;
    uint32_t nr_prelinked;
    uint32_t nr_options;
    struct fgw_bound_image bound;
    struct option options[];
};

void fgw_kept_image_limit(struct fgw_worker *worker, uint64_t most_bytes)
{
    worker->calls->most_kept_bytes = most_bytes;
    fgw_told_want(worker, most_bytes != 0);
}

static bool attach(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, uint8_t *image,
                   uint64_t image_bytes, const struct fgw_request *request)
{
    const struct fgv_request_cuModuleLoadDataEx *fixed = request->fixed;
    const uint64_t option_bytes = fixed->nr_options * sizeof(struct option);
    const uint64_t kept_bytes = worker->calls->kept_bytes;
    if (kept_bytes > worker->calls->most_kept_bytes || image_bytes > worker->calls->most_kept_bytes - kept_bytes) {
        return false;
    }
    struct kept *kept = malloc(sizeof(*kept) + option_bytes);
    if (!kept) {
        return false;
    }
    *kept = (struct kept){.serial = ++worker->calls->nr_images,
                          .image = image,
                          .image_bytes = image_bytes,
                          .nr_prelinked = fixed->prelinked,
                          .nr_options = fixed->nr_options};
    memcpy(kept->options, request->payload, option_bytes);
    worker->calls->kept_bytes += image_bytes;
    fgw_bound_add(worker, &kept->bound, image, image_bytes);
    fgw_handle_hang(worker, kind, number, kept);
    return true;
}

bool fgw_kept_image_attach(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, uint8_t *image,
                           uint64_t image_bytes, const struct fgw_request *request)
{
    const bool is_kept = attach(worker, kind, number, image, image_bytes, request);
    if (!is_kept) {
        fgw_bound_add_unkept(worker);
    }
    return is_kept;
}

void fgw_image_release(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    struct kept *kept = handle->object;
    fgw_told_forget(worker, handle->kind, handle->number);
    if (kept) {
        fgw_bound_remove(worker, &kept->bound);
        worker->calls->kept_bytes -= kept->image_bytes;
        free(kept->image);
        free(kept);
    } else if (handle->is_charged) { /* a library's modules have no image of their own */
        fgw_bound_remove_unkept(worker);
    }
    if (handle->has_managed) {
        fgw_bound_remove_managed(worker);
    }
    if (handle->is_charged) {
        fgw_image_memory_give(worker, handle->kind, handle->taken_bytes);
    }
    fgw_image_forget(worker, handle);
}

/* ---- saved ---- */

/* Options, then the image. */
struct saved_image {
    uint64_t image_bytes; /* 0: the module of a library, or one that is known */
    uint64_t serial;      /* 0: its bytes follow */
    uint32_t nr_prelinked;
    uint32_t nr_options;
};

const char *fgw_image_save(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver)
{
    const struct fgw_handle above = fgw_handle_above(worker, handle);
    const struct kept *kept = handle->object;
    struct saved_image saved = {0};
    if (above.kind == FGV_HANDLE_LIBRARY) {
        fgw_saver_put(saver, &saved, sizeof(saved));
        return NULL;
    }
    if (!kept) {
        return "its image was not kept";
    }
    const bool is_known = kept->serial < saver->first_image;
    saved = (struct saved_image){.image_bytes = is_known ? 0 : kept->image_bytes,
                                 .serial = is_known ? kept->serial : 0,
                                 .nr_prelinked = kept->nr_prelinked,
                                 .nr_options = kept->nr_options};
    fgw_saver_put(saver, &saved, sizeof(saved));
    fgw_saver_put(saver, kept->options, kept->nr_options * sizeof(struct option));
    fgw_saver_put(saver, kept->image, saved.image_bytes);
    return NULL;
}

static const char *send_image(struct fgw_worker *worker, struct fgw_saved *saved, const uint8_t *image, uint64_t bytes)
{
    const struct fgv_request_blob_begin begin = {.blob = OWN_BLOB, .bytes = bytes};
    const struct fgv_request_blob_append append = {
        .blob = OWN_BLOB, .bytes = (uint32_t)bytes, .place = FGV_PLACE_INLINE};
    if (bytes > FGV_IMAGE_MAX_BYTES) {
        return FGW_SAVED_ODD;
    }
    const char *why =
        fgw_saved_serve(worker, saved, &(struct fgw_saved_call){.call = FGV_CALL_blob_begin, .fixed = &begin});
    return why ? why
               : fgw_saved_serve(worker, saved,
                                 &(struct fgw_saved_call){.call = FGV_CALL_blob_append,
                                                          .fixed = &append,
                                                          .payload = image,
                                                          .payload_bytes = (uint32_t)bytes});
}

static const char *load_again(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved,
                              const struct saved_image *was)
{
    if (was->nr_options > FGW_JIT_MAX_OPTIONS || was->serial != 0) {
        return FGW_SAVED_ODD;
    }
    const uint32_t option_bytes = was->nr_options * (uint32_t)sizeof(struct option);
    const uint8_t *options = fgw_saved_view(saved, option_bytes);
    const uint8_t *image = fgw_saved_view(saved, was->image_bytes);
    const struct fgv_request_cuModuleLoadDataEx load = {.blob = OWN_BLOB,
                                                        .handle = head->number,
                                                        .prelinked = was->nr_prelinked,
                                                        .nr_options = was->nr_options,
                                                        .chunk = FGV_NO_CHUNK};
    if (!options || !image) {
        return FGW_SAVED_CUT_SHORT;
    }
    const char *why = send_image(worker, saved, image, was->image_bytes);
    const uint16_t call = head->kind == FGV_HANDLE_LIBRARY ? FGV_CALL_cuLibraryLoadData : FGV_CALL_cuModuleLoadDataEx;
    return why ? why
               : fgw_saved_serve(worker, saved,
                                 &(struct fgw_saved_call){
                                     .call = call, .fixed = &load, .payload = options, .payload_bytes = option_bytes});
}

const char *fgw_image_restore(struct fgw_worker *worker, const struct fgw_saved_head *head, struct fgw_saved *saved)
{
    struct saved_image was;
    if (!fgw_saved_take(saved, &was, sizeof(was))) {
        return FGW_SAVED_CUT_SHORT;
    }
    if (head->above_kind != FGV_HANDLE_LIBRARY) {
        return load_again(worker, head, saved, &was);
    }
    const struct fgv_request_cuLibraryGetModule of_library = {.pMod = head->number, .library = head->above};
    return fgw_saved_serve(worker, saved,
                           &(struct fgw_saved_call){.call = FGV_CALL_cuLibraryGetModule, .fixed = &of_library});
}
