/*
 * Context-local storage: where each copy of the runtime keeps its state of a context, found by (context, key).
 *
 * Nearly every runtime call begins with a get, from any thread, while puts and deletes come a few times in a process's
 * life. So: a small cache in each thread, valid for as long as nothing changed anywhere (one counter), and behind it
 * one dense array that is read under a sequence lock and changed under a mutex. A reader that meets a writer does not
 * spin, it takes the mutex. Arrays that were outgrown are kept for late readers: together they are smaller than the one
 * in use.
 *
 * Wrong when a process keeps thousands of contexts: the array is searched from end to end, after a miss in the cache.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "internal.h"

#define FGV_STORAGE_FIRST_CAPACITY 16
#define FGV_STORAGE_NR_CACHED      4 /* a power of two */

/* Readers race with a writer by design; the sequence tells them afterwards. Hence atomic fields. */
struct fgv_storage_entry {
    _Atomic(CUcontext) context;
    _Atomic(void *) key;
    _Atomic(void *) value;
    fgv_storage_destructor destructor; /* under the mutex only */
};

struct fgv_storage_array {
    struct fgv_storage_array *outgrown;
    size_t capacity;
    atomic_size_t nr_entries;
    struct fgv_storage_entry entries[];
};

static pthread_mutex_t storage_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct fgv_storage_array *) storage_array;
/* Odd while a writer is at work. Starts at 2: a thread's zeroed cache is of no sequence that ever was. */
static atomic_uint_fast64_t storage_sequence = 2;

struct fgv_storage_cached {
    uint64_t sequence;
    CUcontext context;
    void *key;
    void *value;
};

/* initial-exec: no call into the dynamic linker when it is read; glibc reserves enough for 128 bytes. */
#define FGV_TLS_INITIAL_EXEC __attribute__((tls_model("initial-exec")))
static _Thread_local struct fgv_storage_cached storage_cache[FGV_STORAGE_NR_CACHED] FGV_TLS_INITIAL_EXEC;

static struct fgv_storage_cached *cache_slot(const void *key)
{
    /* Keys are addresses of objects of different libraries: pages differ, and so do offsets. */
    uintptr_t mixed = (uintptr_t)key ^ ((uintptr_t)key >> 12);
    return &storage_cache[(mixed ^ (mixed >> 4)) % FGV_STORAGE_NR_CACHED];
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&storage_mutex);
}

static void fork_done(void)
{
    pthread_mutex_unlock(&storage_mutex);
}

/* A child forked while another thread was writing would inherit a locked mutex and half an entry. */
static void fork_handlers_register(void)
{
    static atomic_flag is_registered = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&is_registered)) {
        pthread_atfork(fork_prepare, fork_done, fork_done);
    }
}

static void write_begin(void)
{
    pthread_mutex_lock(&storage_mutex);
    atomic_store_explicit(&storage_sequence, atomic_load_explicit(&storage_sequence, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    /* No fence: each store to an entry is a release, so whoever reads one with acquire sees the odd sequence too. */
}

static void write_end(void)
{
    /* release: pairs with the acquire of a reader's first look at the sequence. */
    atomic_store_explicit(&storage_sequence, atomic_load_explicit(&storage_sequence, memory_order_relaxed) + 1,
                          memory_order_release);
    pthread_mutex_unlock(&storage_mutex);
}

static struct fgv_storage_entry *entry_find(struct fgv_storage_array *array, CUcontext context, const void *key)
{
    if (!array) {
        return NULL;
    }
    /* acquire on each: keeps the reader's second look at the sequence behind them. */
    size_t nr_entries = atomic_load_explicit(&array->nr_entries, memory_order_acquire);
    for (size_t i = 0; i < nr_entries; i++) {
        struct fgv_storage_entry *entry = &array->entries[i];
        if (atomic_load_explicit(&entry->context, memory_order_acquire) == context &&
            atomic_load_explicit(&entry->key, memory_order_acquire) == key) {
            return entry;
        }
    }
    return NULL;
}

static void entry_set(struct fgv_storage_entry *entry, CUcontext context, void *key, void *value,
                      fgv_storage_destructor destructor)
{
    atomic_store_explicit(&entry->context, context, memory_order_release);
    atomic_store_explicit(&entry->key, key, memory_order_release);
    atomic_store_explicit(&entry->value, value, memory_order_release);
    entry->destructor = destructor;
}

/* Under the mutex: the last entry takes the place of the removed one. */
static void entry_remove(struct fgv_storage_array *array, struct fgv_storage_entry *entry)
{
    size_t nr_left = atomic_load_explicit(&array->nr_entries, memory_order_relaxed) - 1;
    const struct fgv_storage_entry *last = &array->entries[nr_left];
    entry_set(entry, last->context, last->key, last->value, last->destructor);
    atomic_store_explicit(&array->nr_entries, nr_left, memory_order_release);
}

/* Under the mutex: an array with room for one more entry, or NULL when memory is out. */
static struct fgv_storage_array *array_with_room(void)
{
    struct fgv_storage_array *array = atomic_load_explicit(&storage_array, memory_order_relaxed);
    size_t nr_entries = !array ? 0 : atomic_load_explicit(&array->nr_entries, memory_order_relaxed);
    if (array && nr_entries < array->capacity) {
        return array;
    }
    size_t capacity = !array ? FGV_STORAGE_FIRST_CAPACITY : 2 * array->capacity;
    struct fgv_storage_array *larger = calloc(1, sizeof(*larger) + capacity * sizeof(larger->entries[0]));
    if (!larger) {
        return NULL;
    }
    larger->outgrown = array;
    larger->capacity = capacity;
    for (size_t i = 0; i < nr_entries; i++) {
        const struct fgv_storage_entry *entry = &array->entries[i];
        entry_set(&larger->entries[i], entry->context, entry->key, entry->value, entry->destructor);
    }
    atomic_store_explicit(&larger->nr_entries, nr_entries, memory_order_release);
    atomic_store_explicit(&storage_array, larger, memory_order_release);
    return larger;
}

static CUresult context_resolve(CUcontext *context)
{
    if (*context && *context != (CUcontext)(intptr_t)-1) {
        return CUDA_SUCCESS;
    }
    return fgv_handshake_current(context);
}

CUresult fgv_storage_put(CUcontext context, void *key, void *value, fgv_storage_destructor destructor)
{
    CUresult result = context_resolve(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    fork_handlers_register();
    write_begin();
    struct fgv_storage_array *array = atomic_load_explicit(&storage_array, memory_order_relaxed);
    struct fgv_storage_entry *entry = entry_find(array, context, key);
    if (entry) {
        entry_set(entry, context, key, value, destructor);
    } else if ((array = array_with_room())) {
        size_t nr_entries = atomic_load_explicit(&array->nr_entries, memory_order_relaxed);
        entry_set(&array->entries[nr_entries], context, key, value, destructor);
        atomic_store_explicit(&array->nr_entries, nr_entries + 1, memory_order_release);
    } else {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    write_end();
    return result;
}

/* Does not run the destructor: whoever deletes frees the value itself. A key that is not there is deleted already. */
CUresult fgv_storage_delete(CUcontext context, void *key)
{
    CUresult result = context_resolve(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    write_begin();
    struct fgv_storage_array *array = atomic_load_explicit(&storage_array, memory_order_relaxed);
    struct fgv_storage_entry *entry = entry_find(array, context, key);
    if (entry) {
        entry_remove(array, entry);
    }
    write_end();
    return CUDA_SUCCESS;
}

/* One search; what it found is valid if the sequence is the same, and even, before and after. */
static bool storage_search(CUcontext context, const void *key, void **value)
{
    struct fgv_storage_entry *entry =
        entry_find(atomic_load_explicit(&storage_array, memory_order_acquire), context, key);
    if (!entry) {
        return false;
    }
    *value = atomic_load_explicit(&entry->value, memory_order_acquire);
    return true;
}

CUresult fgv_storage_get(void **value, CUcontext context, void *key)
{
    if (!value) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *value = NULL;
    CUresult result = context_resolve(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_storage_cached *cached = cache_slot(key);
    /* acquire: pairs with write_end. Read before the search, so that what is cached is never newer than it says. */
    uint64_t sequence = atomic_load_explicit(&storage_sequence, memory_order_acquire);
    if (cached->sequence == sequence && cached->context == context && cached->key == key) {
        *value = cached->value;
        return CUDA_SUCCESS;
    }
    void *found = NULL;
    bool is_found = storage_search(context, key, &found);
    if (sequence % 2 == 1 || atomic_load_explicit(&storage_sequence, memory_order_relaxed) != sequence) {
        pthread_mutex_lock(&storage_mutex);
        sequence = atomic_load_explicit(&storage_sequence, memory_order_relaxed);
        is_found = storage_search(context, key, &found);
        pthread_mutex_unlock(&storage_mutex);
    }
    if (!is_found) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *cached = (struct fgv_storage_cached){sequence, context, key, found};
    *value = found;
    return CUDA_SUCCESS;
}

/* Takes one entry of the context out of the array. */
static bool entry_take(CUcontext context, void **key, void **value, fgv_storage_destructor *destructor)
{
    bool is_taken = false;
    write_begin();
    struct fgv_storage_array *array = atomic_load_explicit(&storage_array, memory_order_relaxed);
    size_t nr_entries = !array ? 0 : atomic_load_explicit(&array->nr_entries, memory_order_relaxed);
    for (size_t i = 0; i < nr_entries && !is_taken; i++) {
        struct fgv_storage_entry *entry = &array->entries[i];
        if (entry->context != context) {
            continue;
        }
        *key = entry->key;
        *value = entry->value;
        *destructor = entry->destructor;
        entry_remove(array, entry);
        is_taken = true;
    }
    write_end();
    return is_taken;
}

void fgv_handshake_context_destroyed(CUcontext context)
{
    struct fgv_storage_array *array = atomic_load_explicit(&storage_array, memory_order_acquire);
    if (!array) {
        return;
    }
    void *key;
    void *value;
    fgv_storage_destructor destructor;
    /* A destructor may store again: that is destroyed too, but only so often, lest two keep each other alive. */
    for (size_t nr_left = 2 * atomic_load(&array->nr_entries); nr_left > 0; nr_left--) {
        if (!entry_take(context, &key, &value, &destructor)) {
            return;
        }
        if (destructor) {
            destructor(context, key, value);
        }
    }
    while (entry_take(context, &key, &value, &destructor)) {
        continue;
    }
}
