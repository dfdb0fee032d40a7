/* While the file FAIRGV_NO_FORKS is there no fork succeeds, and no thread begins. Loaded before a worker's libraries by
 * test_worker_forks.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static bool are_forbidden(void)
{
    return access(getenv("FAIRGV_NO_FORKS"), F_OK) == 0;
}

pid_t fork(void)
{
    __typeof__(fork) *next = dlsym(RTLD_NEXT, "fork");
    if (are_forbidden()) {
        errno = EAGAIN;
        return -1;
    }
    return next();
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    __typeof__(pthread_create) *next = dlsym(RTLD_NEXT, "pthread_create");
    return are_forbidden() ? EAGAIN : next(thread, attributes, start, argument);
}
