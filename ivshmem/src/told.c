/* Figures for the guest, of which all are of one moment: a sequence lock without a lock. See told.h. */
#include "ivshmem/told.h"

#define NR_TRIES 1000u

static struct fgv_told *told_in(const struct fgv_region *region)
{
    return (struct fgv_told *)(void *)(region->base + FGV_TOLD_OFFSET);
}

#define STORE(field) atomic_store_explicit(&told->field, values->field, memory_order_relaxed)
#define LOAD(field)  .field = atomic_load_explicit(&told->field, memory_order_relaxed)

void fgv_told_write(const struct fgv_region *region, uint32_t number, const struct fgv_told_values *values)
{
    struct fgv_told *told = told_in(region);
    const uint32_t sequence = number * 2;
    atomic_store_explicit(&told->sequence, sequence + 1, memory_order_relaxed);
    /* Release: pairs with the acquire fence of the reader. Who sees one of the values sees that they are written. */
    atomic_thread_fence(memory_order_release);
    STORE(weight);
    STORE(request_permille);
    STORE(limit_permille);
    STORE(entitled_permille);
    STORE(used_permille);
    STORE(quota_bytes);
    STORE(used_ns);
    STORE(wait_ns);
    STORE(nr_waits);
    STORE(memory_bytes);
    /* Release: pairs with the first acquire of the reader. 0 is kept for what nobody wrote. */
    atomic_store_explicit(&told->sequence, sequence + 2 != 0 ? sequence + 2 : 2, memory_order_release);
}

bool fgv_told_read(const struct fgv_region *region, struct fgv_told_values *values)
{
    const struct fgv_told *told = told_in(region);
    for (uint32_t i = 0; i < NR_TRIES; i++) {
        const uint32_t before = atomic_load_explicit(&told->sequence, memory_order_acquire);
        *values = (struct fgv_told_values){
            LOAD(weight),        LOAD(request_permille), LOAD(limit_permille), LOAD(entitled_permille),
            LOAD(used_permille), LOAD(quota_bytes),      LOAD(used_ns),        LOAD(wait_ns),
            LOAD(nr_waits),      LOAD(memory_bytes),
        };
        /* Acquire: the values were read before the sequence is read again. */
        atomic_thread_fence(memory_order_acquire);
        if (before != 0 && before % 2 == 0 && atomic_load_explicit(&told->sequence, memory_order_relaxed) == before) {
            return true;
        }
    }
    return false;
}
