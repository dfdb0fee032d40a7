/*
 * Variants of kernels: kept with the kernel's handle, made when a launch first needs one, for the context of that
 * launch.
 *
 * Making one parses PTX and has the driver compile it, with the loop standing still: it is done once for a kernel, and
 * the time is counted. The grant is given back meanwhile, as for a module that is loaded.
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
#include "parts/state.h"
#include "turn/turn.h"

void fgw_worker_set_slicing(struct fgw_worker *worker, const struct fgw_slicing_settings *settings,
                            const struct fgw_variant_maker *maker)
{
    worker->slicing->settings = *settings;
    worker->slicing->maker = *maker;
}

void fgw_image_keep(struct fgw_worker *worker, uint32_t owner_kind, uint64_t owner, const void *image, uint64_t bytes)
{
    if (worker->slicing->settings.mode != FGW_SLICING_OFF) {
        uint64_t begun_ns = fgw_clock_ns();
        worker->slicing->maker.keep(owner_kind, owner, image, bytes);
        fgw_count(&worker->slot->variant_ns, fgw_clock_ns() - begun_ns);
    }
}

void fgw_image_forget(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    if (worker->slicing->settings.mode != FGW_SLICING_OFF) {
        worker->slicing->maker.forget(handle->kind, handle->number);
    }
}

void fgw_kernel_release(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    struct fgw_kernel *kernel = handle->object;
    if (kernel) {
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

static const struct fgw_handle *owner_in_making;

uint64_t fgw_variant_address(const char *name)
{
    CUdeviceptr address = 0;
    size_t bytes = 0;
    return fgw_variable_find(fgw_the_worker, owner_in_making->kind, owner_in_making->native, name, &address, &bytes) ==
                   CUDA_SUCCESS
               ? address
               : 0;
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
            worker->driver.cuModuleGetGlobal_v2(&constant->to, &bytes, variant->module, names) != CUDA_SUCCESS ||
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

static bool load(struct fgw_worker *worker, const struct fgw_handle *owner, struct fgw_variant *variant,
                 const struct fgw_variant_wish *wish, const struct fgw_kernel *kernel)
{
    const struct fgv_driver *driver = &worker->driver;
    size_t bytes = 0;
    const uint64_t text_bytes = strlen(wish->text);
    if (!fgw_taken_take(worker, FGW_FOR_MODULES, text_bytes)) {
        return false;
    }
    variant->taken_bytes = text_bytes;
    if (!driver->cuModuleLoadDataEx || !driver->cuModuleGetFunction || !driver->cuModuleGetGlobal_v2 ||
        driver->cuModuleLoadDataEx(&variant->module, wish->text, 0, NULL, NULL) != CUDA_SUCCESS) {
        return false;
    }
    return driver->cuModuleGetFunction(&variant->function, variant->module, wish->kernel) == CUDA_SUCCESS &&
           find_descriptor(worker, variant, kernel) && pair_constants(worker, owner, variant, wish->constants) &&
           (wish->mode != FGW_SLICING_PERSISTENT ||
            driver->cuModuleGetGlobal_v2(&variant->state, &bytes, variant->module, FGV_PERSISTENT_STATE_NAME) ==
                CUDA_SUCCESS);
}

static struct fgw_variant *make_in_mode(struct fgw_worker *worker, const struct fgw_handle *handle,
                                        const struct fgw_kernel *kernel, uint32_t mode, enum fgv_whole *why)
{
    const struct fgw_handle owner = owner_of(worker, handle);
    struct fgw_variant_wish wish = {.mode = mode, .kernel = name_of(worker, handle)};
    *why = FGV_WHOLE_NO_PTX;
    if (!wish.kernel || (owner.kind != FGV_HANDLE_MODULE && owner.kind != FGV_HANDLE_LIBRARY)) {
        return NULL;
    }
    wish.owner_kind = owner.kind;
    wish.owner = owner.number;
    wish.capability = (int32_t)fgw_capability_of(worker);
    wish.why_whole = FGV_WHOLE_NOT_COMPILED; /* if Python fails */
    owner_in_making = &owner;
    worker->slicing->maker.make(&wish);
    owner_in_making = NULL;
    *why = (enum fgv_whole)wish.why_whole;
    if (wish.why_whole != FGV_WHOLE_NOT || wish.nr_constants > FGV_MAX_VARIANT_CONSTANTS) {
        return NULL;
    }
    struct fgw_variant *variant = calloc(1, sizeof(*variant) + wish.nr_constants * sizeof(variant->constants[0]));
    if (variant) {
        variant->context = worker->current;
        variant->mode = mode;
        variant->nr_constants = wish.nr_constants;
        if (load(worker, &owner, variant, &wish, kernel)) {
            fgw_count(&worker->slot->nr_variants, 1);
            return variant;
        }
        fgw_variant_drop(worker, variant);
    }
    *why = FGV_WHOLE_NOT_COMPILED;
    return NULL;
}

/* Kernels that cannot run persistently may still run in boxes. */
static struct fgw_variant *make(struct fgw_worker *worker, const struct fgw_handle *handle,
                                const struct fgw_kernel *kernel, enum fgv_whole *why)
{
    uint64_t begun_ns = fgw_clock_ns();
    fgw_turn_give_back(worker);
    struct fgw_variant *variant = make_in_mode(worker, handle, kernel, worker->slicing->settings.mode, why);
    if (!variant && worker->slicing->settings.mode == FGW_SLICING_PERSISTENT) {
        variant = make_in_mode(worker, handle, kernel, FGW_SLICING_BOXES, why);
    }
    fgw_count(&worker->slot->variant_ns, fgw_clock_ns() - begun_ns);
    return variant;
}

struct fgw_variant *fgw_variant_of(struct fgw_worker *worker, const struct fgw_handle *handle,
                                   struct fgw_kernel *kernel, enum fgv_whole *why)
{
    if (kernel->variant) {
        *why = kernel->variant->context == worker->current ? FGV_WHOLE_NOT : FGV_WHOLE_OTHER_CONTEXT;
        return *why == FGV_WHOLE_NOT ? kernel->variant : NULL;
    }
    if (kernel->why_whole == FGV_WHOLE_NOT) {
        kernel->variant = make(worker, handle, kernel, &kernel->why_whole);
    }
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
    if (variant->module && worker->driver.cuModuleUnload) {
        fgw_context_make_current(worker, variant->context);
        worker->driver.cuModuleUnload(variant->module);
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
