/* The thread that beats for the daemon: see host_beat.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "ivshmem/host_beat.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>

#include "wait.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list, and of `is_started` */
static pthread_cond_t listed = PTHREAD_COND_INITIALIZER;
static struct fgv_host_beat *first;
static bool is_started;

static void beat_in(struct fgv_region_header *header)
{
    atomic_fetch_add_explicit(&header->host_beat, 1, memory_order_relaxed); /* only that it moves matters */
}

/*
 * First on its processor, where that is allowed: a thread that only says that the process lives is of no use late. It
 * takes a microsecond of each FGV_BEAT_NS.
 */
static void come_first(void)
{
    const struct sched_param least = {.sched_priority = sched_get_priority_min(SCHED_RR)};
    pthread_setschedparam(pthread_self(), SCHED_RR, &least);
}

static void *beat_in_all(void *unused)
{
    come_first();
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!first) {
            pthread_cond_wait(&listed, &lock);
        }
        const uint64_t now_ns = fgv_now_ns();
        for (const struct fgv_host_beat *beat = first; beat; beat = beat->next) {
            if (now_ns < atomic_load_explicit(&beat->until_ns, memory_order_relaxed)) {
                beat_in(beat->header);
            }
        }
        pthread_mutex_unlock(&lock);
        fgv_nap(FGV_BEAT_NS);
        pthread_mutex_lock(&lock);
    }
    return unused;
}

/* With the lock held. Where there is no thread to be had, the next beat of the daemon's tries again. */
static bool start(void)
{
    sigset_t others, before;
    sigfillset(&others);
    sigdelset(&others, SIGBUS); /* of memory that was cut short (cut.h): blocked, it would end the process */
    pthread_sigmask(SIG_SETMASK, &others, &before);
    pthread_t thread;
    const bool is_there = pthread_create(&thread, NULL, beat_in_all, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (is_there) {
        pthread_detach(thread);
    }
    return is_there;
}

static void list(struct fgv_host_beat *beat, struct fgv_region_header *header)
{
    pthread_mutex_lock(&lock);
    is_started = is_started || start();
    if (is_started && !atomic_load_explicit(&beat->is_listed, memory_order_relaxed)) {
        beat->header = header;
        beat->next = first;
        first = beat;
        atomic_store_explicit(&beat->is_listed, true, memory_order_relaxed);
        pthread_cond_signal(&listed);
    }
    pthread_mutex_unlock(&lock);
}

void fgv_host_beat_keep(struct fgv_host_beat *beat, const struct fgv_region *region, uint64_t for_ns)
{
    atomic_store_explicit(&beat->until_ns, fgv_now_ns() + for_ns, memory_order_relaxed);
    beat_in(region->header);
    if (!atomic_load_explicit(&beat->is_listed, memory_order_relaxed)) {
        list(beat, region->header);
    }
}

void fgv_host_beat_stop(struct fgv_host_beat *beat)
{
    pthread_mutex_lock(&lock);
    for (struct fgv_host_beat **link = &first; *link; link = &(*link)->next) {
        if (*link == beat) {
            *link = beat->next;
            break;
        }
    }
    atomic_store_explicit(&beat->is_listed, false, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}
