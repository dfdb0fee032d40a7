/*
 * The beat: a thread that adds one to the client's beat every FGV_BEAT_NS, so that the daemon tells a living program
 * from a dead one.
 *
 * It is made with clone(), not with pthread_create: the program may be single-threaded, and libc would stop treating it
 * as such; symbols of libpthread have other versions in each libc; and a thread that libc does not know can neither
 * keep the process alive nor be in anybody's way at its end. The price: it runs on the maker's thread-local storage, so
 * it may call nothing of libc, not even what sets errno. It makes two system calls by hand.
 *
 * Wrong when: not on x86-64.
 */
#include "region/beat.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define STACK_BYTES (16u * 1024u)

static _Atomic uint32_t is_stopped; /* also the futex that the thread sleeps on */
static struct fgv_client *beating;

static long call_kernel(long number, long a, long b, long c, long d)
{
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}

struct kernel_time {
    int64_t seconds;
    int64_t nanoseconds;
};

__attribute__((no_stack_protector, no_sanitize("thread", "address", "undefined"))) static int beat(void *argument)
{
    (void)argument;
    const struct kernel_time pause = {.nanoseconds = (int64_t)FGV_BEAT_NS};
    while (atomic_load_explicit(&is_stopped, memory_order_relaxed) == 0) {
        atomic_fetch_add_explicit(&beating->beat, 1, memory_order_relaxed); /* only that it moves matters */
        call_kernel(SYS_futex, (long)&is_stopped, FUTEX_WAIT_PRIVATE, 0, (long)&pause);
    }
    return 0;
}

bool fgv_beat_start(struct fgv_client *client)
{
    uint8_t *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) {
        return false;
    }
    beating = client;
    atomic_store_explicit(&is_stopped, 0, memory_order_relaxed);
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before); /* the thread inherits it: signals are for the program's own threads */
    int thread = clone(beat, stack + STACK_BYTES,
                       CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (thread < 0) {
        munmap(stack, STACK_BYTES);
    }
    return thread >= 0;
}

void fgv_beat_stop(void)
{
    atomic_store_explicit(&is_stopped, 1, memory_order_relaxed);
    call_kernel(SYS_futex, (long)&is_stopped, FUTEX_WAKE_PRIVATE, 1, 0);
}
