/*
 * Variants of kernels: kept with the kernel's handle, made when a launch first needs one, for the context of that
 * launch.
 *
 * Making one parses PTX and has the driver compile it (making.h): it is done once for a kernel, and the time is
 * counted. Launches go whole meanwhile. Where the device does not preempt one of those would keep all others waiting
 * until it ends, so there the loop stands still instead; the grant is given back, as for a module that is loaded.
 *
 * Wrong when: one kernel is launched from several contexts. The first has the variant, in the others it runs whole.
 */
#include "parts/variant.h"

#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "client/current.h"
#include "client/handles.h"
#include "client/kernel.h"
#include "client/state.h"
#include "client/taken.h"
#include "cuda_api/variants.h"
#include "page/bell.h"
#include "page/layout.h"
#include "parts/making.h"
#include "parts/state.h"
#include "turn/turn.h"

void fgw_worker_set_slicing(struct fgw_worker *worker, const struct fgw_slicing_settings *settings,
                            const struct fgw_variant_maker *maker)
{
    worker->slicing->settings = *settings;
    worker->slicing->maker = *maker;
}

static bool makes_variants(const struct fgw_worker *worker)
{
    const struct fgw_slicing_settings *settings = &worker->slicing->settings;
    return settings->mode != FGW_SLICING_OFF || settings->shares_device != 0;
}

void fgw_image_keep(struct fgw_worker *worker, uint32_t owner_kind, uint64_t owner, const void *image, uint64_t bytes)
{
    if (makes_variants(worker)) {
        uint64_t begun_ns = fgw_clock_ns();
        worker->slicing->maker.keep(owner_kind, owner, image, bytes);
        fgw_count(&worker->slot->variant_ns, fgw_clock_ns() - begun_ns);
    }
}

void fgw_image_forget(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    if (makes_variants(worker)) {
        worker->slicing->maker.forget(handle->kind, handle->number);
    }
}

static void give_up_making(struct fgw_worker *worker, struct fgw_kernel *kernel)
{
    if (kernel->making) {
        fgw_making_end(worker, kernel->making);
        kernel->making = NULL;
    }
}

void fgw_kernel_release(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    struct fgw_kernel *kernel = handle->object;
    if (kernel) {
        give_up_making(worker, kernel);
        fgw_variant_drop(worker, kernel->variant);
        free(kernel);
    }
}

/* The module or library that a kernel came from. */
static struct fgw_handle owner_of(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    struct fgw_handle owner = *handle;
    for (struct fgw_handle above = owner; above.number != 0 && above.kind != FGV_HANDLE_CONTEXT;) {
        owner = above;
        above = fgw_handle_above(worker, &owner);
    }
    return owner;
}

static const char *name_of(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    const struct fgv_driver *driver = &worker->driver;
    const char *name = NULL;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (handle->kind == FGV_HANDLE_KERNEL && driver->cuKernelGetName) {
        result = driver->cuKernelGetName(&name, handle->native);
    } else if (handle->kind == FGV_HANDLE_FUNCTION && driver->cuFuncGetName) {
        result = driver->cuFuncGetName(&name, handle->native);
    }
    return result == CUDA_SUCCESS ? name : NULL;
}

/* Pairs of addresses, one in the original and one in the variant. */
static bool pair_constants(struct fgw_worker *worker, const struct fgw_handle *owner, struct fgw_variant *variant,
                           const char *names)
{
    for (uint32_t i = 0; i < variant->nr_constants; i++) {
        struct fgw_variant_constant *constant = &variant->constants[i];
        size_t bytes = 0;
        if (fgw_variable_find(worker, owner->kind, owner->native, names, &constant->from, &constant->bytes) !=
                CUDA_SUCCESS ||
            worker->driver.cuLibraryGetGlobal(&constant->to, &bytes, variant->library, names) != CUDA_SUCCESS ||
            bytes != constant->bytes) {
            return false;
        }
        names += strlen(names) + 1;
    }
    return true;
}

/* Where the descriptor begins among the parameters: the driver is asked, as the variant was compiled by it. */
static bool find_descriptor(struct fgw_worker *worker, struct fgw_variant *variant, const struct fgw_kernel *kernel)
{
    size_t offset = ((size_t)kernel->parameter_bytes + 7) & ~(size_t)7;
    size_t bytes = 0;
    if (worker->driver.cuFuncGetParamInfo &&
        worker->driver.cuFuncGetParamInfo(variant->function, kernel->nr_parameters, &offset, &bytes) != CUDA_SUCCESS) {
        return false;
    }
    variant->descriptor_offset = (uint32_t)offset;
    return offset >= kernel->parameter_bytes && offset <= FGW_MAX_PARAMETER_BYTES;
}

/* Takes it into the current context. */
static bool load(struct fgw_worker *worker, const struct fgw_handle *owner, struct fgw_variant *variant,
                 const struct fgw_made *made, const struct fgw_kernel *kernel, const char *name)
{
    const struct fgv_driver *driver = &worker->driver;
    CUkernel native = NULL;
    size_t bytes = 0;
    if (!fgw_taken_take(worker, FGW_FOR_MODULES, made->text_bytes)) {
        return false;
    }
    variant->taken_bytes = made->text_bytes;
    if (!driver->cuLibraryGetKernel || !driver->cuKernelGetFunction || !driver->cuLibraryGetGlobal) {
        return false;
    }
    return driver->cuLibraryGetKernel(&native, variant->library, name) == CUDA_SUCCESS &&
           driver->cuKernelGetFunction(&variant->function, native) == CUDA_SUCCESS &&
           find_descriptor(worker, variant, kernel) && pair_constants(worker, owner, variant, made->constants) &&
           (made->mode != FGW_SLICING_PERSISTENT ||
            driver->cuLibraryGetGlobal(&variant->state, &bytes, variant->library, FGV_PERSISTENT_STATE_NAME) ==
                CUDA_SUCCESS);
}

/* Begins making one. */
static struct fgw_making *begin(struct fgw_worker *worker, const struct fgw_handle *handle, enum fgv_whole *why)
{
    const struct fgw_slicing_settings *settings = &worker->slicing->settings;
    const struct fgw_handle owner = owner_of(worker, handle);
    const struct fgw_variant_wish wish = {.owner_kind = owner.kind,
                                          .owner = owner.number,
                                          .kernel = name_of(worker, handle),
                                          .mode =
                                              settings->shares_device != 0 ? FGW_SLICING_PERSISTENT : settings->mode,
                                          .capability = (int32_t)fgw_capability_of(worker)};
    *why = FGV_WHOLE_NO_PTX;
    return wish.kernel && (owner.kind == FGV_HANDLE_MODULE || owner.kind == FGV_HANDLE_LIBRARY)
               ? fgw_making_begin(worker, &wish, why)
               : NULL;
}

/* The variant that was made, for the current context. */
static struct fgw_variant *take(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_kernel *kernel)
{
    const struct fgw_handle owner = owner_of(worker, handle);
    const char *name = name_of(worker, handle);
    const struct fgw_made made = fgw_making_take(kernel->making);
    struct fgw_variant *variant = NULL;
    kernel->why_whole = made.why_whole;
    fgw_count(&worker->slot->variant_ns, made.took_ns);
    if (made.why_whole == FGV_WHOLE_NOT) {
        kernel->why_whole = FGV_WHOLE_NOT_COMPILED;
        variant = calloc(1, sizeof(*variant) + made.nr_constants * sizeof(variant->constants[0]));
    }
    if (variant) {
        variant->context = worker->current;
        variant->mode = made.mode;
        variant->nr_constants = made.nr_constants;
        variant->library = made.library;
        if (name && load(worker, &owner, variant, &made, kernel, name)) {
            fgw_count(&worker->slot->nr_variants, 1);
            kernel->why_whole = FGV_WHOLE_NOT;
        } else {
            fgw_variant_drop(worker, variant);
            variant = NULL;
        }
    }
    fgw_making_end(worker, kernel->making);
    kernel->making = NULL;
    return variant;
}

bool fgw_variant_is_made_beside(const struct fgw_worker *worker, const struct fgw_kernel *kernel)
{
    return worker->slicing->settings.waits_for_variant == 0 && !(kernel->making && fgw_making_is_over(kernel->making));
}

struct fgw_variant *fgw_variant_of(struct fgw_worker *worker, const struct fgw_handle *handle,
                                   struct fgw_kernel *kernel, enum fgv_whole *why)
{
    if (kernel->variant) {
        *why = kernel->variant->context == worker->current ? FGV_WHOLE_NOT : FGV_WHOLE_OTHER_CONTEXT;
        return *why == FGV_WHOLE_NOT ? kernel->variant : NULL;
    }
    *why = kernel->why_whole;
    if (*why != FGV_WHOLE_NOT) {
        return NULL;
    }
    if (!kernel->making) {
        kernel->making = begin(worker, handle, why);
    }
    if (!kernel->making) {
        if (*why != FGV_WHOLE_BEING_MADE) {
            kernel->why_whole = *why; /* not for want of room, which there may be later */
        }
        return NULL;
    }
    if (worker->slicing->settings.waits_for_variant != 0) {
        fgw_turn_give_back(worker);
        fgw_making_wait(worker, kernel->making);
    }
    if (!fgw_making_is_over(kernel->making)) {
        *why = FGV_WHOLE_BEING_MADE;
        return NULL;
    }
    if (!fgw_making_is_of(kernel->making, worker->current)) {
        *why = FGV_WHOLE_OTHER_CONTEXT;
        return NULL;
    }
    kernel->variant = take(worker, handle, kernel);
    *why = kernel->why_whole;
    return kernel->variant;
}

void fgw_variant_drop(struct fgw_worker *worker, struct fgw_variant *variant)
{
    if (!variant) {
        return;
    }
    struct fgw_context *before = worker->current;
    if (worker->slicing->parts.variant == variant) {
        worker->slicing->parts = (struct fgw_parts){0};
    }
    if (variant->library) {
        fgw_context_make_current(worker, variant->context);
        worker->driver.cuLibraryUnload(variant->library);
        fgw_context_make_current(worker, before);
    }
    fgw_taken_give(worker, FGW_FOR_MODULES, variant->taken_bytes);
    free(variant);
}

static void drop_variants(struct fgw_worker *worker, enum fgv_handle_kind kind, const struct fgw_context *context)
{
    struct fgw_handle handle;
    for (uint32_t at = 0; fgw_handle_next(worker, kind, &at, &handle);) {
        struct fgw_kernel *kernel = handle.object;
        if (kernel && kernel->making && fgw_making_is_of(kernel->making, context)) {
            give_up_making(worker, kernel);
        }
        if (kernel && kernel->variant && kernel->variant->context == context) {
            fgw_variant_drop(worker, kernel->variant);
            kernel->variant = NULL;
        }
    }
}

void fgw_variants_drop_context(struct fgw_worker *worker, const struct fgw_context *context)
{
    drop_variants(worker, FGV_HANDLE_KERNEL, context);
    drop_variants(worker, FGV_HANDLE_FUNCTION, context);
}

void fgw_count_whole(struct fgw_worker *worker, enum fgv_whole why)
{
    _Atomic uint32_t *counter = &worker->slot->nr_whole[(uint32_t)why < FGV_NR_WHOLE ? (uint32_t)why : 0];
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}
