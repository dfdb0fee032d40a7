/* Tables of handles: see handles.h. */
#include "base/handles.h"

#include <pthread.h>
#include <stdlib.h>

struct fgv_handle_table fgv_handle_tables[FGV_HANDLE_MAX_KINDS];

/* The part that only makers and droppers touch, under the lock. */
static struct {
    pthread_mutex_t lock;
    uint32_t nr_used; /* places ever used; 0 never is, since the low half of a context's number is not 0 on the wire */
    uint32_t first_free; /* index + 1 of a dropped place */
} books[FGV_HANDLE_MAX_KINDS] = {[0 ... FGV_HANDLE_MAX_KINDS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER, .nr_used = 1}};

#define MAX_PLACES ((FGV_HANDLE_FIRST_BLOCK << FGV_HANDLE_NR_BLOCKS) - FGV_HANDLE_FIRST_BLOCK)
_Static_assert(MAX_PLACES <= 1u << 24, "an index has 24 bits");

/* The entry of a place, whether in use or not; NULL without memory. Under the lock. */
static struct fgv_handle_entry *place_get(enum fgv_handle_kind kind, uint32_t index)
{
    uint32_t place = index + FGV_HANDLE_FIRST_BLOCK;
    uint32_t block = 31u - (uint32_t)__builtin_clz(place / FGV_HANDLE_FIRST_BLOCK);
    _Atomic(struct fgv_handle_entry *) *slot = &fgv_handle_tables[kind].blocks[block];
    struct fgv_handle_entry *entries =
        atomic_load_explicit(slot, memory_order_relaxed); /* written under this lock only */
    if (!entries) {
        entries = calloc((size_t)FGV_HANDLE_FIRST_BLOCK << block, sizeof(*entries));
        if (!entries) {
            return NULL;
        }
        atomic_store_explicit(slot, entries, memory_order_release);
    }
    return &entries[place - (FGV_HANDLE_FIRST_BLOCK << block)];
}

static uint64_t handle_make(enum fgv_handle_kind kind, uint32_t generation, uint32_t index)
{
    return (UINT64_C(0x40) + (uint64_t)kind) << 56 | (uint64_t)generation << 24 | index;
}

CUresult fgv_handle_new(enum fgv_handle_kind kind, uint64_t *handle)
{
    pthread_mutex_lock(&books[kind].lock);
    bool is_again = books[kind].first_free != 0;
    uint32_t index = is_again ? books[kind].first_free - 1 : books[kind].nr_used;
    struct fgv_handle_entry *entry = index < MAX_PLACES ? place_get(kind, index) : NULL;
    if (entry) {
        if (is_again) {
            books[kind].first_free = entry->next_free;
        } else {
            books[kind].nr_used++;
        }
        entry->object = NULL;
        *handle = handle_make(kind, entry->generation, index);
        atomic_store_explicit(&entry->handle, *handle, memory_order_release);
    }
    pthread_mutex_unlock(&books[kind].lock);
    return entry ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult fgv_handle_new_run(enum fgv_handle_kind kind, uint32_t count, uint64_t *first)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&books[kind].lock);
    uint32_t start = books[kind].nr_used; /* fresh places: one generation, one after the other */
    if (count > MAX_PLACES - start) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (!place_get(kind, start + i)) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (result == CUDA_SUCCESS) {
        for (uint32_t i = 0; i < count; i++) {
            atomic_store_explicit(&place_get(kind, start + i)->handle, handle_make(kind, 0, start + i),
                                  memory_order_release);
        }
        books[kind].nr_used = start + count;
        *first = handle_make(kind, 0, start);
    }
    pthread_mutex_unlock(&books[kind].lock);
    return result;
}

/* ---- handles that were renamed ---- */

/* Few: found by looking at each. Under the lock of the kind. */
struct name {
    struct name *next;
    uint64_t number;
    uint64_t handle; /* that was, and whose place it has */
};
static struct name *_Atomic names[FGV_HANDLE_MAX_KINDS];

static struct name *name_find(enum fgv_handle_kind kind, uint64_t number)
{
    struct name *name = atomic_load_explicit(&names[kind], memory_order_relaxed);
    while (name && name->number != number) {
        name = name->next;
    }
    return name;
}

static uint32_t index_of(uint64_t handle)
{
    return (uint32_t)(handle & 0xffffffu);
}

CUresult fgv_handle_rename(enum fgv_handle_kind kind, uint64_t handle, uint64_t number)
{
    struct name *name = malloc(sizeof(*name));
    if (!name) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&books[kind].lock);
    *name = (struct name){.next = names[kind], .number = number, .handle = handle};
    atomic_store_explicit(&place_get(kind, index_of(handle))->handle, number, memory_order_release);
    atomic_store_explicit(&names[kind], name, memory_order_relaxed); /* read under this lock, but for whether any is */
    pthread_mutex_unlock(&books[kind].lock);
    return CUDA_SUCCESS;
}

struct fgv_handle_entry *fgv_handle_renamed(enum fgv_handle_kind kind, uint64_t number)
{
    if (!atomic_load_explicit(&names[kind], memory_order_relaxed)) {
        return NULL;
    }
    pthread_mutex_lock(&books[kind].lock);
    const struct name *name = name_find(kind, number);
    struct fgv_handle_entry *entry = name ? place_get(kind, index_of(name->handle)) : NULL;
    pthread_mutex_unlock(&books[kind].lock);
    return entry;
}

/* Gives the handle that it was; of one that was never renamed that one. Under the lock. */
static uint64_t name_forget(enum fgv_handle_kind kind, uint64_t number)
{
    struct name *gone = name_find(kind, number);
    if (!gone) {
        return number;
    }
    const uint64_t handle = gone->handle;
    if (names[kind] == gone) {
        names[kind] = gone->next;
    } else {
        struct name *before = names[kind];
        while (before->next != gone) {
            before = before->next;
        }
        before->next = gone->next;
    }
    free(gone);
    return handle;
}

/* ---- */

CUresult fgv_handle_check(enum fgv_handle_kind kind, uint64_t handle)
{
    if (fgv_handle_entry(kind, handle)) {
        return CUDA_SUCCESS;
    }
    return kind == FGV_HANDLE_CONTEXT      ? CUDA_ERROR_INVALID_CONTEXT
           : kind == FGV_HANDLE_GRAPH_EXEC ? CUDA_ERROR_INVALID_VALUE
                                           : CUDA_ERROR_INVALID_HANDLE;
}

void fgv_handle_drop(enum fgv_handle_kind kind, uint64_t handle)
{
    struct fgv_handle_entry *entry = fgv_handle_entry(kind, handle);
    pthread_mutex_lock(&books[kind].lock);
    if (entry && atomic_load_explicit(&entry->handle, memory_order_relaxed) == handle) { /* by nobody else meanwhile */
        atomic_store_explicit(&entry->handle, 0, memory_order_release);
        entry->generation++;
        entry->next_free = books[kind].first_free;
        books[kind].first_free = index_of(name_forget(kind, handle)) + 1;
    }
    pthread_mutex_unlock(&books[kind].lock);
}

void fgv_handle_set_object(enum fgv_handle_kind kind, uint64_t handle, void *object)
{
    struct fgv_handle_entry *entry = fgv_handle_entry(kind, handle);
    if (entry) {
        entry->object = object;
    }
}

void fgv_handle_each(enum fgv_handle_kind kind, void (*visit)(uint64_t handle, void *object, void *context),
                     void *context)
{
    pthread_mutex_lock(&books[kind].lock);
    uint32_t nr_used = books[kind].nr_used;
    pthread_mutex_unlock(&books[kind].lock);
    for (uint32_t index = 1; index < nr_used; index++) {
        pthread_mutex_lock(&books[kind].lock);
        struct fgv_handle_entry *entry = place_get(kind, index);
        uint64_t handle = atomic_load_explicit(&entry->handle, memory_order_relaxed); /* written under this lock only */
        void *object = entry->object;
        pthread_mutex_unlock(&books[kind].lock);
        if (handle != 0) {
            visit(handle, object, context);
        }
    }
}
