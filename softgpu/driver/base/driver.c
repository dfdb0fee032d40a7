/* The lock, the door into the driver, and the log. */
#include "base/driver.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Thread_local bool sgp_is_called;
struct sgp_driver sgp_driver = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void sgp_lock_closed(void)
{
    pthread_mutex_lock(&sgp_driver.lock);
}

void sgp_lock(void)
{
    pthread_mutex_lock(&sgp_driver.lock);
    while (sgp_driver.door == SGP_CLOSED) {
        pthread_cond_wait(&sgp_driver.changed, &sgp_driver.lock);
    }
}

void sgp_unlock(void)
{
    pthread_mutex_unlock(&sgp_driver.lock);
}

void sgp_wait(void)
{
    sgp_driver.nr_waiting++;
    do {
        pthread_cond_wait(&sgp_driver.changed, &sgp_driver.lock);
    } while (sgp_driver.door == SGP_CLOSED);
    sgp_driver.nr_waiting--;
}

bool sgp_wait_until(uint64_t ns)
{
    const struct timespec end = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    int error;

    sgp_driver.nr_waiting++;
    error = pthread_cond_clockwait(&sgp_driver.changed, &sgp_driver.lock, CLOCK_MONOTONIC, &end);
    sgp_driver.nr_waiting--;
    return error != ETIMEDOUT;
}

void sgp_door_open(void)
{
    sgp_driver.door = SGP_OPEN;
    pthread_cond_broadcast(&sgp_driver.changed);
}

void sgp_notify(void)
{
    if (sgp_driver.nr_waiting) {
        pthread_cond_broadcast(&sgp_driver.changed);
    }
}

CUresult sgp_enter_driver(void)
{
    return sgp_is_called ? CUDA_ERROR_NOT_PERMITTED : sgp_enter_driver_anywhere();
}

CUresult sgp_enter_driver_anywhere(void)
{
    /* Before the lock: in a forked child some other thread of the parent may hold it for ever. */
    if (sgp_driver.is_forked) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    sgp_lock();
    while (sgp_driver.door != SGP_OPEN) {
        sgp_wait();
    }
    if (sgp_driver.is_initialised) {
        sgp_driver.find_failures();
        return CUDA_SUCCESS;
    }
    sgp_unlock();
    return CUDA_ERROR_NOT_INITIALIZED;
}

CUresult sgp_leave(CUresult result)
{
    sgp_unlock();
    return result;
}

uint64_t sgp_new_id(void)
{
    return ++sgp_driver.next_id;
}

uint64_t sgp_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* FAIRGV_LOG is a list of areas, or "all". Areas: device, compile, kernel; procs is not in "all": a runtime asks for
 * hundreds. */
static bool log_wants(const char *area)
{
    const char *wanted = getenv("FAIRGV_LOG");

    return wanted && (strstr(wanted, area) || (strstr(wanted, "all") && strcmp(area, "procs")));
}

void sgp_log(const char *area, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    int length;

    if (!log_wants(area)) {
        return;
    }
    length = snprintf(line, sizeof(line), "softgpu[%d] ", (int)getpid());
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof(line) - (size_t)length - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof(line) - 2) {
        length = sizeof(line) - 2;
    }
    line[length++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)length) < 0) {
        return;
    }
}
