/*
 * Threads that map regions, have the daemon's beat in them, and unmap them, all at once: nothing beats in memory that
 * is not mapped any more, and all that stay are beaten in.
 *
 * Usage: host_beat_stress NR_THREADS NR_REGIONS_EACH
 * Prints "stopped=N moved=N" and exits 0, or ends as who touches memory that is not there.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "ivshmem/host_beat.h"

#define MAX_THREADS   8u
#define NR_UNTIL_STAY 100u
#define LONG_NS       UINT64_C(1000000000000)

static uint64_t nr_regions;
static _Atomic uint64_t nr_stopped, nr_moved;

static void await_two_beats(struct fgv_region_header *header)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    const uint64_t before = atomic_load(&header->host_beat);
    while (atomic_load(&header->host_beat) < before + 2) {
        nanosleep(&nap, NULL);
    }
    nr_moved++;
}

static void *come_and_go(void *unused)
{
    for (uint64_t i = 1; i <= nr_regions; i++) {
        void *page = mmap(NULL, FGV_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) {
            exit(1);
        }
        const struct fgv_region region = {.header = page};
        struct fgv_host_beat beat = {0};
        for (uint32_t again = 0; again < 3; again++) {
            fgv_host_beat_keep(&beat, &region, LONG_NS);
        }
        if (i % NR_UNTIL_STAY == 0) {
            await_two_beats(region.header);
        }
        fgv_host_beat_stop(&beat);
        munmap(page, FGV_PAGE_BYTES);
        nr_stopped++;
    }
    return unused;
}

int main(int argc, char **argv)
{
    const uint32_t nr_threads = argc == 3 ? (uint32_t)atoi(argv[1]) : 0;
    nr_regions = argc == 3 ? (uint64_t)atoll(argv[2]) : 0;
    if (nr_threads == 0 || nr_threads > MAX_THREADS) {
        return 2;
    }
    pthread_t threads[MAX_THREADS];
    for (uint32_t i = 0; i < nr_threads; i++) {
        if (pthread_create(&threads[i], NULL, come_and_go, NULL) != 0) {
            return 1;
        }
    }
    for (uint32_t i = 0; i < nr_threads; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("stopped=%" PRIu64 " moved=%" PRIu64 "\n", atomic_load(&nr_stopped), atomic_load(&nr_moved));
    return 0;
}
