/* While the file FAIRGV_NO_FORKS is there no fork succeeds. Loaded before a worker's libraries by test_worker_forks.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

pid_t fork(void)
{
    __typeof__(fork) *next = dlsym(RTLD_NEXT, "fork");
    if (access(getenv("FAIRGV_NO_FORKS"), F_OK) == 0) {
        errno = EAGAIN;
        return -1;
    }
    return next();
}
