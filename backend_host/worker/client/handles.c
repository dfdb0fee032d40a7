/*
 * The guest's numbers and the driver's objects behind them. Nothing a guest sends is ever used as a pointer: a number
 * that is not in this table, or is there as another kind, is CUDA's error for a bad handle.
 *
 * Open addressing with linear probing; a removal moves later entries back, so there are no tombstones to pile up.
 */
#include "client/handles.h"

#include <stdlib.h>

#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"

/* Beside a kind: an entry whose number is the driver's object, and which leads to the number of that. */
#define BY_NATIVE 0x40

/* The product's upper half depends on the lower bits alone, and the first objects of all kinds differ in the upper ones
 * of their numbers: those are folded down. */
static uint32_t hash(uint64_t number, uint8_t kind)
{
    uint64_t mixed = (number ^ (number >> 32) ^ kind) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(mixed >> 32);
}

bool fgw_handles_init(struct fgw_worker *worker, const fgw_release *releases)
{
    struct fgw_handles *handles = &worker->handles;
    handles->releases = releases;
    handles->mask = 1023;
    handles->nr = 0;
    handles->places = calloc((size_t)handles->mask + 1, sizeof(*handles->places));
    return handles->places != NULL;
}

static struct fgw_handle *place_of(struct fgw_handles *handles, enum fgv_handle_kind kind, uint64_t number)
{
    uint32_t place = hash(number, (uint8_t)kind) & handles->mask;
    while (handles->places[place].number != 0 &&
           (handles->places[place].number != number || handles->places[place].kind != (uint8_t)kind)) {
        place = (place + 1) & handles->mask;
    }
    return &handles->places[place];
}

struct fgw_handle *fgw_handle_find(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number)
{
    if (number == 0) {
        return NULL;
    }
    struct fgw_handle *handle = place_of(&worker->handles, kind, number);
    return handle->number != 0 ? handle : NULL;
}

static bool grow(struct fgw_handles *handles)
{
    struct fgw_handles larger = {.mask = handles->mask * 2 + 1, .nr = handles->nr, .releases = handles->releases};
    larger.places = calloc((size_t)larger.mask + 1, sizeof(*larger.places));
    if (!larger.places) {
        return false;
    }
    for (uint32_t i = 0; i <= handles->mask; i++) {
        struct fgw_handle *handle = &handles->places[i];
        if (handle->number != 0) {
            *place_of(&larger, handle->kind, handle->number) = *handle;
        }
    }
    free(handles->places);
    *handles = larger;
    return true;
}

static void remove_place(struct fgw_handles *handles, struct fgw_handle *handle)
{
    uint32_t hole = (uint32_t)(handle - handles->places);
    for (uint32_t next = (hole + 1) & handles->mask; handles->places[next].number != 0;
         next = (next + 1) & handles->mask) {
        uint32_t home = hash(handles->places[next].number, handles->places[next].kind) & handles->mask;
        if (((next - home) & handles->mask) >= ((next - hole) & handles->mask)) {
            handles->places[hole] = handles->places[next];
            hole = next;
        }
    }
    handles->places[hole] = (struct fgw_handle){0};
    handles->nr--;
}

static bool is_of_graphs(uint8_t kind)
{
    return kind == FGV_HANDLE_GRAPH || kind == FGV_HANDLE_GRAPH_NODE || kind == FGV_HANDLE_GRAPH_EXEC ||
           kind == FGW_HANDLE_GRAPH_CONDITION || (kind & BY_NATIVE) != 0;
}

CUresult fgw_worker_can_bind(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number)
{
    struct fgw_handles *handles = &worker->handles;
    if (number <= 2 || fgw_handle_find(worker, kind, number)) {
        return CUDA_ERROR_INVALID_HANDLE; /* 0, 1 and 2 name default streams */
    }
    if (handles->nr >= FGW_MAX_HANDLES || (handles->nr * 2 > handles->mask && !grow(handles))) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult fgw_worker_bind(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, void *native)
{
    CUresult result = fgw_worker_can_bind(worker, kind, number);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgw_handle handle = {.number = number, .native = native, .kind = (uint8_t)kind, .context = worker->current};
    if (kind == FGV_HANDLE_STREAM) {
        handle.object = worker->current ? fgw_stream_new(worker->current, native) : NULL;
        if (!handle.object) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (kind == FGV_HANDLE_LIBRARY || kind == FGV_HANDLE_KERNEL || kind == FGV_HANDLE_CONTEXT ||
        kind == FGV_HANDLE_LINK || kind == FGV_HANDLE_MEMORY_POOL || kind == FGV_HANDLE_ALLOCATION ||
        is_of_graphs(kind)) {
        handle.context = NULL; /* outlives contexts */
    }
    *place_of(&worker->handles, kind, number) = handle;
    worker->handles.nr++;
    return CUDA_SUCCESS;
}

CUresult fgw_worker_bind_under(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, void *native,
                               enum fgv_handle_kind parent_kind, uint64_t parent)
{
    struct fgw_handle *above = fgw_handle_find(worker, parent_kind, parent);
    if (!above) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = fgw_worker_bind(worker, kind, number, native);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgw_handle *handle = fgw_handle_find(worker, kind, number);
    handle->parent = parent;
    handle->parent_kind = (uint8_t)parent_kind;
    fgw_handle_find(worker, parent_kind, parent)->nr_children++;
    return CUDA_SUCCESS;
}

/* Unbinds every handle below (kind, number), or, without a kind, all of the context. Places move under the walk, hence
 * the repetition. */
static void unbind_all(struct fgw_worker *worker, uint8_t kind, uint64_t number, const struct fgw_context *context)
{
    struct fgw_handles *handles = &worker->handles;
    bool is_changed;
    do {
        is_changed = false;
        for (uint32_t i = 0; i <= handles->mask;) {
            struct fgw_handle *handle = &handles->places[i];
            bool is_below =
                kind != 0 ? handle->parent == number && handle->parent_kind == kind : handle->context == context;
            if (handle->number != 0 && is_below) {
                fgw_worker_unbind(worker, handle->kind, handle->number);
                is_changed = true;
            } else {
                i++;
            }
        }
    } while (is_changed);
}

/* Gives back what hangs on a handle that is in the table no more. Other handles may go with it, so places move. */
static void release(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    const fgw_release own = handle->kind < FGV_HANDLE_KINDS ? worker->handles.releases[handle->kind] : NULL;
    if (own) {
        own(worker, handle);
    } else {
        free(handle->object);
    }
}

void fgw_worker_unbind(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number)
{
    struct fgw_handle *handle = fgw_handle_find(worker, kind, number);
    if (handle && handle->nr_children != 0) {
        unbind_all(worker, (uint8_t)kind, number, NULL);
        handle = fgw_handle_find(worker, kind, number);
    }
    if (!handle) {
        return;
    }
    const struct fgw_handle gone = *handle;
    remove_place(&worker->handles, handle);
    struct fgw_handle *above = fgw_handle_find(worker, gone.parent_kind, gone.parent);
    if (above) {
        above->nr_children--;
    }
    struct fgw_handle *by_native =
        is_of_graphs(kind) ? fgw_handle_find(worker, kind | BY_NATIVE, (uint64_t)(uintptr_t)gone.native) : NULL;
    if (by_native) {
        remove_place(&worker->handles, by_native);
    }
    release(worker, &gone);
}

uint64_t fgw_handle_number(struct fgw_worker *worker, enum fgv_handle_kind kind, const void *native)
{
    struct fgw_handle *by_native = fgw_handle_find(worker, kind | BY_NATIVE, (uint64_t)(uintptr_t)native);
    return by_native ? (uint64_t)(uintptr_t)by_native->native : 0;
}

bool fgw_handle_remember_native(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number)
{
    struct fgw_handle *handle = fgw_handle_find(worker, kind, number);
    return fgw_worker_bind(worker, kind | BY_NATIVE, (uint64_t)(uintptr_t)handle->native, (void *)(uintptr_t)number) ==
           CUDA_SUCCESS;
}

struct fgw_handle *fgw_handle_of_native(struct fgw_worker *worker, enum fgv_handle_kind kind, const void *native)
{
    for (uint32_t i = 0; i <= worker->handles.mask; i++) {
        struct fgw_handle *handle = &worker->handles.places[i];
        if (handle->number != 0 && handle->kind == (uint8_t)kind && handle->native == native) {
            return handle;
        }
    }
    return NULL;
}

void fgw_handles_drop_context(struct fgw_worker *worker, struct fgw_context *context)
{
    unbind_all(worker, 0, 0, context);
}

CUresult fgw_worker_find(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, void **native)
{
    if (kind == FGV_HANDLE_STREAM && number <= 2) {
        *native = (void *)(uintptr_t)number;
        return CUDA_SUCCESS;
    }
    struct fgw_handle *handle = fgw_handle_find(worker, kind, number);
    if (!handle) {
        return kind == FGV_HANDLE_CONTEXT ? CUDA_ERROR_INVALID_CONTEXT
               : is_of_graphs(kind)       ? CUDA_ERROR_INVALID_VALUE
                                          : CUDA_ERROR_INVALID_HANDLE;
    }
    *native = handle->native;
    return CUDA_SUCCESS;
}

void fgw_handles_end(struct fgw_worker *worker)
{
    struct fgw_handles *handles = &worker->handles;
    for (uint32_t i = 0; i <= handles->mask; i++) {
        if (handles->places[i].number != 0) {
            release(worker, &handles->places[i]);
        }
    }
    free(handles->places);
}

struct fgw_stream *fgw_stream_find(struct fgw_worker *worker, uint64_t number)
{
    if (number <= 2) {
        struct fgw_context *context = worker->current;
        return !context ? NULL : number == 2 ? &context->per_thread : &context->legacy;
    }
    struct fgw_handle *handle = fgw_handle_find(worker, FGV_HANDLE_STREAM, number);
    return handle ? handle->object : NULL;
}
