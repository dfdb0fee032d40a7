/* What the library keeps for each thread: see thread.h. */
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

_Thread_local struct fgv_thread fgv_thread __attribute__((tls_model("initial-exec")));
void (*fgv_thread_ends)(void);

/* In libc since 2.18. pthread_key_create would do, had it the same version in every libc. */
extern int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *dso_handle);
extern void *__dso_handle;

/* pthread_create has another version in each libc. The oldest is everywhere: in libc or in libpthread, which every
 * program with threads has loaded. */
extern int old_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                              void *argument) __attribute__((weak));
__asm__(".symver old_pthread_create, pthread_create@GLIBC_2.2.5");

/* The main thread comes by here at the start of exit(), and calls made by exit handlers still follow. */
static void thread_ends(void *unused)
{
    (void)unused;
    fgv_thread.is_registered = 0;
    fgv_thread_ends();
    free(fgv_thread.more);
    fgv_thread.more = NULL;
}

void fgv_thread_register(void)
{
    if (fgv_thread.is_registered) {
        return;
    }
    fgv_thread.is_registered = 1;
    __cxa_thread_atexit_impl(thread_ends, NULL, __dso_handle);
}

struct fgv_thread_more *fgv_thread_more(void)
{
    if (!fgv_thread.more) {
        fgv_thread.more = calloc(1, sizeof(*fgv_thread.more));
        fgv_thread_register();
    }
    return fgv_thread.more;
}

uint32_t fgv_thread_id(void)
{
    if (fgv_thread.id == 0) {
        fgv_thread.id = (uint32_t)syscall(SYS_gettid);
    }
    return fgv_thread.id;
}

bool fgv_thread_make(void *(*run)(void *argument), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (!old_pthread_create || pthread_attr_init(&attributes) != 0) {
        return false;
    }
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigdelset(&all, SIGSEGV); /* what it does itself: a touch of managed memory may be one */
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigprocmask(SIG_SETMASK, &all, &before);
    int error = old_pthread_create(&thread, &attributes, run, argument);
    sigprocmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0;
}
