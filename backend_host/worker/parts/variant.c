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
#include "page/bell.h"
#include "page/layout.h"
#include "cuda_api/variants.h"
#include "parts/state.h"
#include "turn/turn.h"

void fgv_worker_set_slicing(struct fgv_worker *worker, const struct fgv_slicing_settings *settings,
                            const struct fgv_variant_maker *maker)
{
    worker->slicing->settings = *settings;
    worker->slicing->maker = *maker;
}

void fgv_image_keep(struct fgv_worker *worker, uint32_t owner_kind, uint64_t owner, const void *image, uint64_t bytes)
{
    if (worker->slicing->settings.mode != FGV_SLICING_OFF) {
        uint64_t begun_ns = fgv_clock_ns();
        worker->slicing->maker.keep(owner_kind, owner, image, bytes);
        fgv_count(&worker->slot->variant_ns, fgv_clock_ns() - begun_ns);
    }
}

void fgv_image_release(struct fgv_worker *worker, const struct fgv_handle *handle)
{
    free(handle->object);
    if (worker->slicing->settings.mode != FGV_SLICING_OFF) {
        worker->slicing->maker.forget(handle->kind, handle->number);
    }
}

void fgv_kernel_release(struct fgv_worker *worker, const struct fgv_handle *handle)
{
    struct fgv_kernel *kernel = handle->object;
    if (kernel) {
        fgv_variant_drop(worker, kernel->variant);
        free(kernel);
    }
}

/* The module or library that a kernel came from. */
static struct fgv_handle *owner_of(struct fgv_worker *worker, struct fgv_handle *handle)
{
    while (handle && handle->parent_kind != 0) {
        handle = fgv_handle_find(worker, handle->parent_kind, handle->parent);
    }
    return handle;
}

static const struct fgv_handle *owner_in_making;

uint64_t fgv_variant_address(const char *name)
{
    CUdeviceptr address = 0;
    size_t bytes = 0;
    return fgv_variable_find(fgv_the_worker, owner_in_making->kind, owner_in_making->native, name, &address, &bytes) ==
                   CUDA_SUCCESS
               ? address
               : 0;
}

static const char *name_of(struct fgv_worker *worker, const struct fgv_handle *handle)
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
static bool pair_constants(struct fgv_worker *worker, const struct fgv_handle *owner, struct fgv_variant *variant,
                           const char *names)
{
    for (uint32_t i = 0; i < variant->nr_constants; i++) {
        struct fgv_variant_constant *constant = &variant->constants[i];
        size_t bytes = 0;
        if (fgv_variable_find(worker, owner->kind, owner->native, names, &constant->from, &constant->bytes) !=
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
static bool find_descriptor(struct fgv_worker *worker, struct fgv_variant *variant, const struct fgv_kernel *kernel)
{
    size_t offset = ((size_t)kernel->parameter_bytes + 7) & ~(size_t)7;
    size_t bytes = 0;
    if (worker->driver.cuFuncGetParamInfo &&
        worker->driver.cuFuncGetParamInfo(variant->function, kernel->nr_parameters, &offset, &bytes) != CUDA_SUCCESS) {
        return false;
    }
    variant->descriptor_offset = (uint32_t)offset;
    return offset >= kernel->parameter_bytes && offset <= FGV_MAX_PARAMETER_BYTES;
}

static bool load(struct fgv_worker *worker, const struct fgv_handle *owner, struct fgv_variant *variant,
                 const struct fgv_variant_wish *wish, const struct fgv_kernel *kernel)
{
    const struct fgv_driver *driver = &worker->driver;
    size_t bytes = 0;
    if (!driver->cuModuleLoadDataEx || !driver->cuModuleGetFunction || !driver->cuModuleGetGlobal_v2 ||
        driver->cuModuleLoadDataEx(&variant->module, wish->text, 0, NULL, NULL) != CUDA_SUCCESS) {
        return false;
    }
    return driver->cuModuleGetFunction(&variant->function, variant->module, wish->kernel) == CUDA_SUCCESS &&
           find_descriptor(worker, variant, kernel) && pair_constants(worker, owner, variant, wish->constants) &&
           (wish->mode != FGV_SLICING_PERSISTENT ||
            driver->cuModuleGetGlobal_v2(&variant->state, &bytes, variant->module, FGV_PERSISTENT_STATE_NAME) ==
                CUDA_SUCCESS);
}

static struct fgv_variant *make_in_mode(struct fgv_worker *worker, struct fgv_handle *handle, uint32_t mode,
                                        enum fgv_whole *why)
{
    struct fgv_handle *owner = owner_of(worker, handle);
    const struct fgv_kernel *kernel = handle->object;
    struct fgv_variant_wish wish = {.mode = mode, .kernel = name_of(worker, handle)};
    *why = FGV_WHOLE_NO_PTX;
    if (!owner || !wish.kernel || (owner->kind != FGV_HANDLE_MODULE && owner->kind != FGV_HANDLE_LIBRARY)) {
        return NULL;
    }
    wish.owner_kind = owner->kind;
    wish.owner = owner->number;
    wish.capability = (int32_t)fgv_capability_of(worker);
    wish.why_whole = FGV_WHOLE_NOT_COMPILED; /* if Python fails */
    owner_in_making = owner;
    worker->slicing->maker.make(&wish);
    owner_in_making = NULL;
    *why = (enum fgv_whole)wish.why_whole;
    if (wish.why_whole != FGV_WHOLE_NOT || wish.nr_constants > FGV_MAX_VARIANT_CONSTANTS) {
        return NULL;
    }
    struct fgv_variant *variant = calloc(1, sizeof(*variant) + wish.nr_constants * sizeof(variant->constants[0]));
    if (variant) {
        variant->context = worker->current;
        variant->mode = mode;
        variant->nr_constants = wish.nr_constants;
        if (load(worker, owner, variant, &wish, kernel)) {
            fgv_count(&worker->slot->nr_variants, 1);
            return variant;
        }
        fgv_variant_drop(worker, variant);
    }
    *why = FGV_WHOLE_NOT_COMPILED;
    return NULL;
}

/* Kernels that cannot run persistently may still run in boxes. */
static struct fgv_variant *make(struct fgv_worker *worker, struct fgv_handle *handle, enum fgv_whole *why)
{
    uint64_t begun_ns = fgv_clock_ns();
    fgv_turn_pause(worker);
    struct fgv_variant *variant = make_in_mode(worker, handle, worker->slicing->settings.mode, why);
    if (!variant && worker->slicing->settings.mode == FGV_SLICING_PERSISTENT) {
        variant = make_in_mode(worker, handle, FGV_SLICING_BOXES, why);
    }
    fgv_count(&worker->slot->variant_ns, fgv_clock_ns() - begun_ns);
    return variant;
}

struct fgv_variant *fgv_variant_of(struct fgv_worker *worker, struct fgv_handle *handle, enum fgv_whole *why)
{
    struct fgv_kernel *kernel = handle->object;
    if (kernel->variant) {
        *why = kernel->variant->context == worker->current ? FGV_WHOLE_NOT : FGV_WHOLE_OTHER_CONTEXT;
        return *why == FGV_WHOLE_NOT ? kernel->variant : NULL;
    }
    if (kernel->why_whole == FGV_WHOLE_NOT) {
        kernel->variant = make(worker, handle, &kernel->why_whole);
    }
    *why = kernel->why_whole;
    return kernel->variant;
}

void fgv_variant_drop(struct fgv_worker *worker, struct fgv_variant *variant)
{
    if (!variant) {
        return;
    }
    struct fgv_context *before = worker->current;
    if (worker->slicing->parts.variant == variant) {
        worker->slicing->parts = (struct fgv_parts){0};
    }
    if (variant->module && worker->driver.cuModuleUnload) {
        fgv_context_make_current(worker, variant->context);
        worker->driver.cuModuleUnload(variant->module);
        fgv_context_make_current(worker, before);
    }
    free(variant);
}

void fgv_variants_drop_context(struct fgv_worker *worker, const struct fgv_context *context)
{
    for (uint32_t i = 0; i <= worker->handles.mask; i++) {
        struct fgv_handle *handle = &worker->handles.places[i];
        bool is_kernel = handle->kind == FGV_HANDLE_KERNEL || handle->kind == FGV_HANDLE_FUNCTION;
        struct fgv_kernel *kernel = handle->number != 0 && is_kernel ? handle->object : NULL;
        if (kernel && kernel->variant && kernel->variant->context == context) {
            fgv_variant_drop(worker, kernel->variant);
            kernel->variant = NULL;
        }
    }
}

void fgv_count_whole(struct fgv_worker *worker, enum fgv_whole why)
{
    _Atomic uint32_t *counter = &worker->slot->nr_whole[(uint32_t)why < FGV_NR_WHOLE ? (uint32_t)why : 0];
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}
