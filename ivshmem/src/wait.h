/*
 * How a thread passes time: a pause in a spin loop, the monotonic clock, a nap, a futex.
 *
 * The futex is the shared kind (the peer is another process) and is called by number, so that the guest's library needs
 * nothing beyond libc. Private to ivshmem/src.
 *
 * Wrong when: the two ends do not run on one kernel. A futex word in a VM's memory is not the host's futex;
 * FGV_WAKE_POLL is for that.
 */
#ifndef IVSHMEM_SRC_WAIT_H
#define IVSHMEM_SRC_WAIT_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FGV_NS_PER_S         UINT64_C(1000000000)
#define FGV_NAP_MIN_NS       UINT64_C(20000)
#define FGV_NAP_MAX_NS       UINT64_C(1000000)
#define FGV_NAP_DIVISOR      16 /* of the time waited so far: what a nap makes a wait longer by, at most */
#define FGV_ASK_NS           UINT64_C(50000000) /* how often a waiting thread asks whether to go on */
#define FGV_PAUSES_PER_CLOCK 32u /* a pause takes 10 to 140 cycles: the clock is read every 0.1 to 2 us */

static inline void fgv_cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static inline uint64_t fgv_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * FGV_NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline struct timespec fgv_timespec(uint64_t ns)
{
    struct timespec spec = {.tv_sec = (time_t)(ns / FGV_NS_PER_S), .tv_nsec = (long)(ns % FGV_NS_PER_S)};
    return spec;
}

/* Sleeps for `ns` or until a signal. */
static inline void fgv_nap(uint64_t ns)
{
    struct timespec spec = fgv_timespec(ns);
    nanosleep(&spec, NULL);
}

/* Sleeps if the word still is `expected`: until woken, for `timeout_ns`, or until a signal. Callers look at the word
 * again in any case. */
static inline void fgv_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
    struct timespec spec = fgv_timespec(timeout_ns);
    syscall(SYS_futex, word, FUTEX_WAIT, expected, &spec, NULL, 0);
}

static inline void fgv_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Asks `keep_waiting` when FGV_ASK_NS have passed since it was last asked. Without one, waiting goes on for ever. */
struct fgv_patience {
    uint64_t asked_ns;
    uint32_t nr_rounds;
    bool (*keep_waiting)(void *, uint32_t);
    void *context;
};

static inline bool fgv_patience_lasts(struct fgv_patience *patience, uint64_t now_ns)
{
    if (now_ns - patience->asked_ns < FGV_ASK_NS) {
        return true;
    }
    patience->asked_ns = now_ns;
    return !patience->keep_waiting || patience->keep_waiting(patience->context, patience->nr_rounds++);
}

/* How long to nap where nobody wakes, after a wait of so long. */
static inline uint64_t fgv_nap_after(uint64_t waited_ns)
{
    uint64_t nap_ns = waited_ns / FGV_NAP_DIVISOR;
    return nap_ns < FGV_NAP_MIN_NS ? FGV_NAP_MIN_NS : nap_ns < FGV_NAP_MAX_NS ? nap_ns : FGV_NAP_MAX_NS;
}

static inline uint64_t fgv_nap_longer(uint64_t nap_ns)
{
    return nap_ns * 2 < FGV_NAP_MAX_NS ? nap_ns * 2 : FGV_NAP_MAX_NS;
}

#endif
