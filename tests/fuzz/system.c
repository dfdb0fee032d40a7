/*
 * What the worker is compiled to call in place of the system's while it is fuzzed: build.py has the names. An input
 * does the same each time, and ends no process.
 */
#include <linux/futex.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#include "client/state.h"
#include "daemon.h"
#include "ivshmem/response.h"
#include "worker.h"

#define PATIENCE 500u /* rounds that nothing comes of */

static uint64_t now_ns;
static uint32_t nr_waits;

int fuzz_clock_gettime(clockid_t clock, struct timespec *time);
unsigned int fuzz_alarm(unsigned int seconds);
void (*fuzz_signal(int number, void (*handler)(int)))(int);
_Noreturn void fuzz__exit(int status);

void fuzz_pass(uint64_t ns)
{
    now_ns += ns;
}

int fuzz_clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    now_ns += FUZZ_TICK_NS;
    *time = (struct timespec){.tv_sec = (time_t)(now_ns / 1000000000u), .tv_nsec = (long)(now_ns % 1000000000u)};
    return 0;
}

ssize_t fuzz_getrandom(void *bytes, size_t nr, unsigned int flags);

ssize_t fuzz_getrandom(void *bytes, size_t nr, unsigned int flags)
{
    (void)flags;
    memset(bytes, 0x5a, nr);
    return (ssize_t)nr;
}

unsigned int fuzz_alarm(unsigned int seconds)
{
    (void)seconds;
    return 0;
}

void (*fuzz_signal(int number, void (*handler)(int)))(int)
{
    (void)number;
    (void)handler;
    return NULL;
}

_Noreturn void fuzz__exit(int status)
{
    (void)status;
    abort();
}

/* The backlog is large, and making it anew takes longer than most inputs: one serves all workers. */
void *fuzz_malloc(size_t bytes);
void fuzz_free(void *bytes);

static void *backlog;

void *fuzz_malloc(size_t bytes)
{
    backlog = backlog ? backlog : malloc(bytes);
    return backlog;
}

void fuzz_free(void *bytes)
{
    if (bytes != backlog) {
        free(bytes);
    }
}

/* In calls/host_function.c a driver's thread waits: for the guest, which then waits at its mailbox, or for the worker.
 */
long fuzz_syscall(long number, ...);

long fuzz_syscall(long number, ...)
{
    va_list arguments;
    (void)number;
    va_start(arguments, number);
    _Atomic uint32_t *word = va_arg(arguments, _Atomic uint32_t *);
    const int operation = va_arg(arguments, int);
    va_end(arguments);
    nr_waits = operation == FUTEX_WAIT_PRIVATE ? nr_waits + 1 : 0;
    if (operation == FUTEX_WAIT) {
        *word = FGV_SLOT_WAITING;
    } else if (operation == FUTEX_WAIT_PRIVATE) {
        if (nr_waits % PATIENCE == 0) {
            daemon_calm(fgw_the_worker); /* it may have no room, for as long as the daemon gives it none */
        }
        fuzz_round(fgw_the_worker);
    }
    return 0;
}

/* A guest may ask for more than there is: the worker is to be told so, as without a sanitizer. */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=64";
}
