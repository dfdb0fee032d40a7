/* What the library keeps for each thread: see thread.h. */
#include "base/thread.h"

#include <stdlib.h>

_Thread_local struct fgv_thread fgv_thread __attribute__((tls_model("initial-exec")));
void (*fgv_thread_ends)(void);

/* In libc since 2.18. pthread_key_create would do, had it the same version in every libc. */
extern int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *dso_handle);
extern void *__dso_handle;

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
