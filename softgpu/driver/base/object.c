/*
 * Which addresses are handles. An open hash table of the addresses of live objects: a program may pass any number as a
 * handle, and only those found here are followed. Grows by doubling, never shrinks.
 */
#include "base/object.h"

#include <stdlib.h>

#define REMOVED ((struct sgp_object *)1)

static struct sgp_object **table;
static size_t nr_slots;
static size_t nr_used; /* slots that are not empty, removed ones too */

static size_t slot_of(const void *handle, size_t nr)
{
    return (size_t)(((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15ull >> 20) & (nr - 1);
}

static void insert(struct sgp_object **slots, size_t nr, struct sgp_object *object)
{
    size_t i = slot_of(object, nr);

    while (slots[i]) {
        i = (i + 1) & (nr - 1);
    }
    slots[i] = object;
}

static bool grow(void)
{
    size_t nr_live = 0, nr = 256;
    struct sgp_object **slots;

    for (size_t i = 0; i < nr_slots; i++) {
        nr_live += table[i] && table[i] != REMOVED;
    }
    while (nr < 4 * (nr_live + 1)) {
        nr *= 2;
    }
    slots = calloc(nr, sizeof(*slots));
    if (!slots) {
        return false;
    }
    for (size_t i = 0; i < nr_slots; i++) {
        if (table[i] && table[i] != REMOVED) {
            insert(slots, nr, table[i]);
        }
    }
    free(table);
    table = slots;
    nr_slots = nr;
    nr_used = nr_live;
    return true;
}

static struct sgp_object **find(const void *handle)
{
    if (!handle || handle == REMOVED || !nr_slots) {
        return NULL;
    }
    for (size_t i = slot_of(handle, nr_slots); table[i]; i = (i + 1) & (nr_slots - 1)) {
        if (table[i] == handle) {
            return &table[i];
        }
    }
    return NULL;
}

bool sgp_object_add(void *handle, enum sgp_kind kind, void (*destroy)(void *))
{
    struct sgp_object *object = handle;

    if (2 * (nr_used + 1) > nr_slots && !grow()) {
        return false;
    }
    object->kind = kind;
    object->nr_references = 1;
    object->destroy = destroy;
    insert(table, nr_slots, object);
    nr_used++;
    return true;
}

bool sgp_object_is(const void *handle, enum sgp_kind kind)
{
    struct sgp_object **slot = find(handle);

    return slot && (*slot)->kind == kind;
}

struct CUctx_st *sgp_object_context(const void *handle)
{
    struct sgp_object **slot = find(handle);

    return slot ? (*slot)->context : NULL;
}

CUresult sgp_enter_object(const void *handle, enum sgp_kind kind, CUresult error)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    return sgp_object_is(handle, kind) ? CUDA_SUCCESS : sgp_leave(error);
}

void sgp_object_remove(void *handle)
{
    struct sgp_object **slot = find(handle);

    if (slot) {
        *slot = REMOVED;
    }
}

void sgp_object_keep(void *handle)
{
    ((struct sgp_object *)handle)->nr_references++;
}

void sgp_object_release(void *handle)
{
    struct sgp_object *object = handle;

    if (--object->nr_references == 0 && object->destroy) {
        object->destroy(object);
    }
}
