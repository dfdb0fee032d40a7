/*
 * User objects: a reference count and a destructor of the program's, kept alive by graphs and by what is instantiated
 * of them. All of it is the program's own affair, so the host never hears of it.
 *
 * A destructor runs in the thread that gives up the last reference. What was launched may still use the object: who
 * destroys an instantiated graph waits for the device first.
 */
#include <pthread.h>
#include <stdlib.h>

#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"

struct CUuserObject_st {
    struct CUuserObject_st *next;
    void *value;
    CUhostFn destroy;
    uint64_t nr_references;
};

struct reference {
    struct reference *next;
    uint64_t owner;
    CUuserObject object;
    uint64_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUuserObject_st *objects;
static struct reference *references;

static struct CUuserObject_st **object_find(CUuserObject object)
{
    struct CUuserObject_st **link = &objects;
    while (*link && *link != object) {
        link = &(*link)->next;
    }
    return link;
}

/* Takes references away. Under the lock; the object, when none is left, is the caller's to destroy. */
static CUuserObject object_release(CUuserObject object, uint64_t count)
{
    object->nr_references -= count;
    if (object->nr_references != 0) {
        return NULL;
    }
    *object_find(object) = object->next;
    return object;
}

static void object_destroy(CUuserObject object)
{
    if (!object) {
        return;
    }
    object->destroy(object->value);
    free(object);
}

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount,
                            unsigned int flags)
{
    if (!object_out || !destroy || initialRefcount == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUuserObject object = malloc(sizeof(*object));
    if (!object) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *object = (struct CUuserObject_st){.value = ptr, .destroy = destroy, .nr_references = initialRefcount};
    pthread_mutex_lock(&lock);
    object->next = objects;
    objects = object;
    pthread_mutex_unlock(&lock);
    *object_out = object;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    pthread_mutex_lock(&lock);
    bool is_good = count != 0 && *object_find(object);
    if (is_good) {
        object->nr_references += count;
    }
    pthread_mutex_unlock(&lock);
    return is_good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    CUuserObject gone = NULL;
    pthread_mutex_lock(&lock);
    bool is_good = count != 0 && *object_find(object) && object->nr_references >= count;
    if (is_good) {
        gone = object_release(object, count);
    }
    pthread_mutex_unlock(&lock);
    object_destroy(gone);
    return is_good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct reference *reference_find(uint64_t owner, CUuserObject object)
{
    struct reference *reference = references;
    while (reference && (reference->owner != owner || reference->object != object)) {
        reference = reference->next;
    }
    return reference;
}

/* Under the lock. Counts nothing at the object. */
static bool reference_add(uint64_t owner, CUuserObject object, uint64_t count)
{
    struct reference *reference = reference_find(owner, object);
    if (!reference) {
        reference = malloc(sizeof(*reference));
        if (!reference) {
            return false;
        }
        *reference = (struct reference){.next = references, .owner = owner, .object = object};
        references = reference;
    }
    reference->count += count;
    return true;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (graph && count != 0 && (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) == 0 && *object_find(object)) {
        result = reference_add((uint64_t)(uintptr_t)graph, object, count) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS && flags == 0) {
            object->nr_references += count;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    CUuserObject gone = NULL;
    pthread_mutex_lock(&lock);
    struct reference *reference = reference_find((uint64_t)(uintptr_t)graph, object);
    bool is_good = reference && count != 0 && reference->count >= count;
    if (is_good) {
        reference->count -= count;
        gone = object_release(object, count);
    }
    pthread_mutex_unlock(&lock);
    object_destroy(gone);
    return is_good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void fgv_user_objects_copy(uint64_t from, uint64_t to)
{
    pthread_mutex_lock(&lock);
    for (struct reference *reference = references; reference; reference = reference->next) {
        if (reference->owner == from && reference->count != 0 && reference_add(to, reference->object, 1)) {
            reference->object->nr_references++;
        }
    }
    pthread_mutex_unlock(&lock);
}

bool fgv_user_objects_has(uint64_t owner)
{
    pthread_mutex_lock(&lock);
    struct reference *reference = references;
    while (reference && reference->owner != owner) {
        reference = reference->next;
    }
    pthread_mutex_unlock(&lock);
    return reference != NULL;
}

bool fgv_user_object_is_any(uint64_t owner, CUhostFn destroy, bool (*is_one)(uint64_t value))
{
    bool is_any = false;
    pthread_mutex_lock(&lock);
    for (const struct reference *reference = references; reference && !is_any; reference = reference->next) {
        is_any = reference->owner == owner && reference->count != 0 && reference->object->destroy == destroy &&
                 is_one((uint64_t)(uintptr_t)reference->object->value);
    }
    pthread_mutex_unlock(&lock);
    return is_any;
}

bool fgv_user_object_is_kept(uint64_t owner, CUhostFn destroy, const void *value)
{
    pthread_mutex_lock(&lock);
    struct reference *reference = references;
    while (reference && (reference->owner != owner || reference->count == 0 || reference->object->destroy != destroy ||
                         reference->object->value != value)) {
        reference = reference->next;
    }
    pthread_mutex_unlock(&lock);
    return reference != NULL;
}

/* Takes one reference off the list; NULL when the owner has none. *gone: the object if that was its last. */
static bool owner_release_one(uint64_t owner, CUuserObject *gone)
{
    *gone = NULL;
    pthread_mutex_lock(&lock);
    struct reference **link = &references;
    while (*link && (*link)->owner != owner) {
        link = &(*link)->next;
    }
    struct reference *reference = *link;
    if (reference) {
        *link = reference->next;
        if (reference->count != 0) {
            *gone = object_release(reference->object, reference->count);
        }
    }
    pthread_mutex_unlock(&lock);
    free(reference);
    return reference != NULL;
}

void fgv_user_objects_drop(uint64_t owner)
{
    CUuserObject gone;
    while (owner_release_one(owner, &gone)) {
        object_destroy(gone);
    }
}
