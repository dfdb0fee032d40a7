/*
 * A store is a sparse file of 256 MiB: small, as a process may be kept from making large files. Which of its granules
 * are taken is a set of bits. It stays when it is empty, since a new one is a new process of kernels. A piece that is
 * larger has a store of its own.
 *
 * Where kernels run in a process of their own, each store lies once, without access, in the reach of kernels: what is
 * mapped of it later is mapped there by way of that.
 */
#include "memory/store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/driver.h"
#include "base/reach.h"
#include "base/view.h"

#define STORE_BYTES (UINT64_C(256) << 20)
#define NR_GRANULES (STORE_BYTES / SGP_GRANULARITY_BYTES)
#define WORD_BITS   64u

struct sgp_store {
    struct sgp_store *next;
    int file;
    uint64_t bytes;
    void *view;     /* or NULL */
    bool is_single; /* of one piece, and in no list */
    uint64_t taken[NR_GRANULES / WORD_BITS];
};

static struct sgp_store *stores; /* of many pieces */

static void view_open(struct sgp_store *store)
{
    void *view = sgp_view_is_walled() ? sgp_reach_map(store->bytes, PROT_NONE, MAP_NORESERVE) : NULL;

    if (view && mmap(view, store->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, store->file, 0) == MAP_FAILED) {
        sgp_reach_unmap(view, store->bytes);
        view = NULL;
    }
    store->view = view;
    sgp_view_outdate();
}

static struct sgp_store *store_new(uint64_t bytes)
{
    struct sgp_store *store = calloc(1, sizeof(*store));

    if (!store) {
        return NULL;
    }
    store->bytes = bytes;
    store->file = memfd_create("softgpu", MFD_CLOEXEC);
    if (store->file >= 0 && ftruncate(store->file, (off_t)bytes) == 0) {
        view_open(store);
        return store;
    }
    if (store->file >= 0) {
        close(store->file);
    }
    free(store);
    return NULL;
}

static void store_end(struct sgp_store *store)
{
    if (store->view) {
        sgp_view_outdate();
        sgp_reach_unmap(store->view, store->bytes);
    }
    close(store->file);
    free(store);
}

static bool is_taken(const struct sgp_store *store, uint64_t granule)
{
    return store->taken[granule / WORD_BITS] >> granule % WORD_BITS & 1;
}

static void mark(struct sgp_store *store, uint64_t first, uint64_t nr)
{
    for (uint64_t i = first; i < first + nr; i++) {
        store->taken[i / WORD_BITS] ^= UINT64_C(1) << i % WORD_BITS;
    }
}

static bool find(struct sgp_store *store, uint64_t bytes, struct sgp_store_place *place)
{
    const uint64_t wanted = bytes / SGP_GRANULARITY_BYTES, nr = store->bytes / SGP_GRANULARITY_BYTES;

    for (uint64_t i = 0, free_ones = 0; i < nr; i++) {
        free_ones = is_taken(store, i) ? 0 : free_ones + 1;
        if (free_ones == wanted) {
            *place = (struct sgp_store_place){
                .store = store, .offset = (i + 1 - wanted) * SGP_GRANULARITY_BYTES, .bytes = bytes};
            mark(store, i + 1 - wanted, wanted);
            return true;
        }
    }
    return false;
}

bool sgp_store_take(struct sgp_store_place *place, uint64_t bytes, uint64_t most_bytes)
{
    const uint64_t limit = most_bytes < STORE_BYTES ? most_bytes : STORE_BYTES;
    const uint64_t store_bytes = limit / SGP_GRANULARITY_BYTES * SGP_GRANULARITY_BYTES;
    struct sgp_store *store = bytes <= store_bytes ? stores : NULL;

    while (store && !find(store, bytes, place)) {
        store = store->next;
    }
    if (store) {
        return true;
    }
    store = store_new(bytes <= store_bytes ? store_bytes : bytes);
    if (!store) {
        return false;
    }
    if (bytes > store_bytes) {
        store->is_single = true;
        *place = (struct sgp_store_place){.store = store, .bytes = bytes};
        return true;
    }
    store->next = stores;
    stores = store;
    return find(store, bytes, place);
}

void sgp_store_give_back(const struct sgp_store_place *place)
{
    struct sgp_store *store = place->store;

    if (fallocate(store->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)place->offset, (off_t)place->bytes)) {
        sgp_log("device", "the host does not take %zu bytes back", (size_t)place->bytes);
        return; /* it is not zeros, and so not for use again */
    }
    if (store->is_single) {
        store_end(store);
    } else {
        mark(store, place->offset / SGP_GRANULARITY_BYTES, place->bytes / SGP_GRANULARITY_BYTES);
    }
}

int sgp_store_file(const struct sgp_store_place *place)
{
    return place->store->file;
}

uintptr_t sgp_store_source(const struct sgp_store_place *place)
{
    return place->store && place->store->view ? (uintptr_t)place->store->view + place->offset : 0;
}
