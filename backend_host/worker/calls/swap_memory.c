/*
 * See swap_memory.h. The piece is the thread's while it is wanted, and the loop's in all other states.
 *
 * Wrong when: the host has so little memory that pages are had by taking them from others. The thread is slow then, and
 * what is to be brought out waits for it.
 */
#define _GNU_SOURCE
#include "calls/swap_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/state.h"

#define NICE 10 /* programs first */

enum state { NONE, WANTED, READY, FAILED };

struct fgw_swap_memory {
    const struct fgv_driver *driver;
    CUcontext context;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_ending;
    enum state state;
    uint64_t bytes; /* of the piece */
    void *start;
    struct fgw_printer printer;
    atomic_bool has_printer;
};

/* Large pages take half the time. What cannot be registered is memory all the same: the driver stages its copies. */
static void *make(const struct fgv_driver *driver, uint64_t bytes)
{
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        return NULL;
    }
    madvise(start, bytes, MADV_HUGEPAGE);
    madvise(start, bytes, MADV_DONTDUMP);
    if (madvise(start, bytes, MADV_POPULATE_WRITE) != 0) {
        munmap(start, bytes);
        return NULL;
    }
    if (driver->cuMemHostRegister_v2) {
        driver->cuMemHostRegister_v2(start, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    }
    return start;
}

static void unmake(const struct fgv_driver *driver, void *start, uint64_t bytes)
{
    if (driver->cuMemHostUnregister) {
        driver->cuMemHostUnregister(start);
    }
    munmap(start, bytes);
}

static void *make_all(void *argument)
{
    struct fgw_swap_memory *memory = argument;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    memory->driver->cuCtxSetCurrent(memory->context);
    if (fgw_printer_make(memory->driver, NULL, &memory->printer)) {
        atomic_store_explicit(&memory->has_printer, true, memory_order_release);
    }
    pthread_mutex_lock(&memory->lock);
    while (!memory->is_ending) {
        if (memory->state != WANTED) {
            pthread_cond_wait(&memory->changed, &memory->lock);
            continue;
        }
        pthread_mutex_unlock(&memory->lock);
        void *start = make(memory->driver, memory->bytes);
        pthread_mutex_lock(&memory->lock);
        memory->start = start;
        memory->state = start ? READY : FAILED;
    }
    pthread_mutex_unlock(&memory->lock);
    return NULL;
}

struct fgw_swap_memory *fgw_swap_memory_new(struct fgw_worker *worker, CUcontext context)
{
    struct fgw_swap_memory *memory = calloc(1, sizeof(*memory));
    if (!memory) {
        return NULL;
    }
    memory->driver = &worker->driver;
    memory->context = context;
    pthread_mutex_init(&memory->lock, NULL);
    pthread_cond_init(&memory->changed, NULL);
    if (pthread_create(&memory->thread, NULL, make_all, memory) != 0) {
        free(memory);
        return NULL;
    }
    return memory;
}

void *fgw_swap_memory_take(struct fgw_swap_memory *memory, uint64_t bytes)
{
    void *start = NULL;
    pthread_mutex_lock(&memory->lock);
    if (memory->state == READY && memory->bytes == bytes) {
        start = memory->start;
        memory->state = NONE;
    }
    if (memory->state != WANTED && !start) {
        if (memory->state == READY) { /* what it was for has been freed */
            unmake(memory->driver, memory->start, memory->bytes);
        }
        memory->state = WANTED;
        memory->bytes = bytes;
        pthread_cond_signal(&memory->changed);
    }
    pthread_mutex_unlock(&memory->lock);
    return start;
}

bool fgw_swap_memory_has_failed(struct fgw_swap_memory *memory)
{
    pthread_mutex_lock(&memory->lock);
    const bool has_failed = memory->state == FAILED;
    pthread_mutex_unlock(&memory->lock);
    return has_failed;
}

const struct fgw_printer *fgw_swap_memory_printer(struct fgw_swap_memory *memory)
{
    return memory && atomic_load_explicit(&memory->has_printer, memory_order_acquire) ? &memory->printer : NULL;
}

bool fgw_swap_memory_is_of(const struct fgw_swap_memory *memory, CUcontext context)
{
    return memory && memory->context == context;
}

void fgw_swap_memory_free(struct fgw_worker *worker, void *start, uint64_t bytes)
{
    unmake(&worker->driver, start, bytes);
}

void fgw_swap_memory_end(struct fgw_swap_memory *memory)
{
    if (!memory) {
        return;
    }
    pthread_mutex_lock(&memory->lock);
    memory->is_ending = true;
    pthread_cond_signal(&memory->changed);
    pthread_mutex_unlock(&memory->lock);
    pthread_join(memory->thread, NULL);
    if (memory->state == READY) {
        unmake(memory->driver, memory->start, memory->bytes);
    }
    if (memory->has_printer) {
        fgw_printer_unmake(memory->driver, &memory->printer);
    }
    pthread_cond_destroy(&memory->changed);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}
