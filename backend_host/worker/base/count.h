/* Counters of the control page. */
#ifndef BACKEND_HOST_COUNT_H
#define BACKEND_HOST_COUNT_H

#include <stdatomic.h>
#include <stdint.h>

/* Adds to a counter that has one writer: so it takes no locked instruction. */
static inline void fgw_count(_Atomic uint64_t *counter, uint64_t by)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by, memory_order_relaxed);
}

#endif
