/* What a process does where memory that it shares was cut short: see cut.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "ivshmem/cut.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

struct mapping {
    atomic_bool is_taken;
    _Atomic uintptr_t base; /* 0: nothing is watched */
    _Atomic uint64_t bytes;
    atomic_bool is_cut;
};

static struct mapping watched[FGV_NR_CUTTABLE];
static struct sigaction before;

static struct mapping *mapping_of(uintptr_t address)
{
    for (size_t i = 0; i < FGV_NR_CUTTABLE; i++) {
        /* Acquire: pairs with the release in fgv_cut_watch; bytes are this base's. */
        uintptr_t base = atomic_load_explicit(&watched[i].base, memory_order_acquire);
        if (base != 0 && address >= base &&
            address - base < atomic_load_explicit(&watched[i].bytes, memory_order_relaxed)) {
            return &watched[i];
        }
    }
    return NULL;
}

/* Runs between any two instructions of any thread: it takes no lock. Two threads may run it for one mapping. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    const int saved = errno;
    struct mapping *mapping = info->si_code == BUS_ADRERR ? mapping_of((uintptr_t)info->si_addr) : NULL;
    bool is_replaced = false;
    if (mapping) {
        void *base = (void *)atomic_load_explicit(&mapping->base, memory_order_relaxed);
        /* The whole of it: half of a file beside half of nothing helps nobody, and in huge pages there is no half. */
        is_replaced = mmap(base, atomic_load_explicit(&mapping->bytes, memory_order_relaxed), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
    }
    if (is_replaced) {
        atomic_store_explicit(&mapping->is_cut, true, memory_order_release);
    } else {
        sigaction(SIGBUS, &before, NULL); /* the instruction runs again, and is dealt with as it was before us */
    }
    errno = saved;
}

bool fgv_cut_survive(void)
{
    static atomic_bool is_installed;
    if (atomic_exchange(&is_installed, true)) {
        return true;
    }
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &before) == 0;
}

int32_t fgv_cut_watch(void *base, uint64_t bytes)
{
    for (int32_t i = 0; i < FGV_NR_CUTTABLE; i++) {
        struct mapping *mapping = &watched[i];
        if (!atomic_exchange(&mapping->is_taken, true)) {
            atomic_store_explicit(&mapping->is_cut, false, memory_order_relaxed);
            atomic_store_explicit(&mapping->bytes, bytes, memory_order_relaxed);
            /* Release: pairs with the acquire in mapping_of. */
            atomic_store_explicit(&mapping->base, (uintptr_t)base, memory_order_release);
            return i;
        }
    }
    return -1;
}

bool fgv_cut_happened(int32_t number)
{
    return number >= 0 && atomic_load_explicit(&watched[number].is_cut, memory_order_acquire);
}

void fgv_cut_forget(int32_t number)
{
    if (number >= 0) {
        atomic_store_explicit(&watched[number].base, 0, memory_order_relaxed);
        atomic_store_explicit(&watched[number].is_taken, false, memory_order_release);
    }
}
