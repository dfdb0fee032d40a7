/* A clock of its own for a process of one thread, loaded before libc: CLOCK_MONOTONIC stands still but for naps, and
 * for what `model_time_pass` adds. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns = UINT64_C(1000000000000);

void model_time_pass(uint64_t ns)
{
    now_ns += ns;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (clock != CLOCK_MONOTONIC) {
        return (int)syscall(SYS_clock_gettime, clock, time);
    }
    *time = (struct timespec){.tv_sec = (time_t)(now_ns / 1000000000u), .tv_nsec = (long)(now_ns % 1000000000u)};
    return 0;
}

int nanosleep(const struct timespec *length, struct timespec *left)
{
    (void)left;
    now_ns += (uint64_t)length->tv_sec * UINT64_C(1000000000) + (uint64_t)length->tv_nsec;
    return 0;
}
