/* Sleeping on a word of memory, which processes may share, until another thread changes it. */
#ifndef SOFTGPU_FUTEX_H
#define SOFTGPU_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SGP_LOOK_NS 10000000 /* between looks whether another process lives */

/* Unless the word is another one already; false: nobody woke it for so long, less than a second; 0: for ever. */
static inline bool sgp_futex_wait(_Atomic uint32_t *word, uint32_t seen, long ns)
{
    const struct timespec end = {.tv_nsec = ns};

    return !syscall(SYS_futex, word, FUTEX_WAIT, seen, ns ? &end : NULL, NULL, 0) || errno != ETIMEDOUT;
}

static inline void sgp_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Does nothing for so long, less than a second. Where a process may not sleep in other ways, this works (confine.c). */
static inline void sgp_futex_nap(long ns)
{
    _Atomic uint32_t nobody = 0;

    sgp_futex_wait(&nobody, 0, ns);
}

#endif
