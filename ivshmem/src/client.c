/*
 * The daemon's half of a client's life. client.h tells what it is.
 *
 * Wrong when: two daemons serve one region. Each would make its steps soundly, and undo the other's.
 */
#include "ivshmem/client.h"

#include <string.h>

static struct fgv_client *entry_of(const struct fgv_region *region, uint32_t index)
{
    return index < FGV_NR_CLIENTS ? &region->clients[index] : NULL;
}

bool fgv_client_look(const struct fgv_region *region, uint32_t index, struct fgv_client_view *view)
{
    struct fgv_client *entry = entry_of(region, index);
    if (!entry) {
        return false;
    }
    *view = (struct fgv_client_view){
        /* Acquire: pairs with the guest's release of the state; its fields were written before. */
        .state = atomic_load_explicit(&entry->state, memory_order_acquire),
        .beat = atomic_load_explicit(&entry->beat, memory_order_relaxed),
        .pid = __atomic_load_n(&entry->pid, __ATOMIC_RELAXED),
        .refusal = atomic_load_explicit(&entry->refusal, memory_order_relaxed),
        .deferred_error = atomic_load_explicit(&entry->deferred_error, memory_order_relaxed),
        .sticky_error = atomic_load_explicit(&entry->sticky_error, memory_order_relaxed),
    };
    for (uint32_t i = 0; i < sizeof(view->boot_id); i++) {
        view->boot_id[i] = __atomic_load_n(&entry->boot_id[i], __ATOMIC_RELAXED);
    }
    for (uint32_t i = 0; i < FGV_PROGRAM_BYTES - 1; i++) {
        char c = __atomic_load_n(&entry->program[i], __ATOMIC_RELAXED);
        view->program[i] = c == '\0' || (c >= ' ' && c <= '~') ? c : '?';
    }
    return true;
}

_Static_assert(FGV_NR_CLIENTS <= 64, "a bit for each client");

uint64_t fgv_clients_in_use(const struct fgv_region *region)
{
    uint64_t in_use = 0;
    for (uint32_t index = 0; index < FGV_NR_CLIENTS; index++) {
        if (atomic_load_explicit(&region->clients[index].state, memory_order_relaxed) != FGV_CLIENT_FREE) {
            in_use |= UINT64_C(1) << index;
        }
    }
    return in_use;
}

bool fgv_client_step(const struct fgv_region *region, uint32_t index, uint32_t from, uint32_t to)
{
    struct fgv_client *entry = entry_of(region, index);
    /* Release: pairs with the guest's acquire of the state, acquire with its release. */
    return entry && atomic_compare_exchange_strong_explicit(&entry->state, &from, to, memory_order_acq_rel,
                                                            memory_order_relaxed);
}

bool fgv_client_refuse(const struct fgv_region *region, uint32_t index, uint32_t code)
{
    struct fgv_client *entry = entry_of(region, index);
    if (!entry) {
        return false;
    }
    atomic_store_explicit(&entry->refusal, code, memory_order_relaxed); /* released by the step */
    return fgv_client_step(region, index, FGV_CLIENT_HELLO, FGV_CLIENT_REFUSED);
}

bool fgv_client_fail(const struct fgv_region *region, uint32_t index, uint32_t code)
{
    struct fgv_client *entry = entry_of(region, index);
    if (!entry || atomic_load_explicit(&entry->state, memory_order_acquire) != FGV_CLIENT_READY) {
        return false;
    }
    atomic_store_explicit(&entry->sticky_error, code, memory_order_release);
    return true;
}

bool fgv_client_release(const struct fgv_region *region, uint32_t index, uint32_t seen)
{
    struct fgv_client *entry = entry_of(region, index);
    if (!entry || seen == FGV_CLIENT_FREE) {
        return false;
    }
    /* Before the entry is free: afterwards they belong to the next client. A client that is still there loses them with
     * its pages. */
    atomic_store_explicit(&entry->refusal, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->deferred_error, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->sticky_error, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->output_pending, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->memory_bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&entry->gpu_permille, 0, memory_order_relaxed);
    return fgv_client_step(region, index, seen, FGV_CLIENT_FREE);
}

void fgv_heap_count(const struct fgv_region *region, struct fgv_heap_census *census)
{
    memset(census, 0, sizeof(*census));
    for (uint32_t i = 0; i < FGV_NR_HEAP_AREAS; i++) {
        const struct fgv_heap_area area = fgv_region_area(region, i);
        for (uint64_t page = 0; page < area.nr_pages; page++) {
            uint32_t owner = atomic_load_explicit(&area.owners[page], memory_order_relaxed);
            if (owner == 0) {
                census->nr_free++;
            } else if (owner <= FGV_NR_CLIENTS) {
                census->nr_owned[owner - 1]++;
            } else {
                census->nr_stray++;
            }
        }
    }
}
