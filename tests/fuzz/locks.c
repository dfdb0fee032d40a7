/*
 * No thread runs beside the worker's here, so what a lock is for never happens. Instead it is looked at whether the
 * worker has it: what span.c locks leads here, and so does, first, what changes a table of ranges (build.py).
 */
#include "locks.h"

#include <pthread.h>

#include "calls/state.h"
#include "client/ranges.h"
#include "client/state.h"
#include "stand_in.h"

static bool is_locked;

bool __real_fgw_ranges_make_room(struct fgw_ranges *ranges, uint32_t limit);
void __real_fgw_ranges_insert(struct fgw_ranges *ranges, struct fgw_range range);
void __real_fgw_ranges_erase(struct fgw_ranges *ranges, struct fgw_range *range);
void __real_fgw_ranges_erase_some(struct fgw_ranges *ranges, uint32_t first, uint32_t nr);
int fuzz_pthread_mutex_lock(pthread_mutex_t *mutex);
int fuzz_pthread_mutex_unlock(pthread_mutex_t *mutex);
bool __wrap_fgw_ranges_make_room(struct fgw_ranges *ranges, uint32_t limit);
void __wrap_fgw_ranges_insert(struct fgw_ranges *ranges, struct fgw_range range);
void __wrap_fgw_ranges_erase(struct fgw_ranges *ranges, struct fgw_range *range);
void __wrap_fgw_ranges_erase_some(struct fgw_ranges *ranges, uint32_t first, uint32_t nr);

static void look(const struct fgw_ranges *ranges)
{
    if (!is_locked && ranges == &fgw_the_worker->calls->span.extents) {
        stand_stop("extents change, and a move's thread may read them", "the span's lock is free");
    }
}

void stand_look_at_lock(CUdeviceptr address)
{
    struct fgw_ranges *extents = &fgw_the_worker->calls->span.extents;
    if (fgw_ranges_find(extents, address)) {
        look(extents);
    }
}

int fuzz_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    (void)mutex; /* the only one of span.c */
    if (is_locked) {
        stand_stop("the worker would wait for itself", "it has the span's lock");
    }
    is_locked = true;
    return 0;
}

int fuzz_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    (void)mutex;
    is_locked = false;
    return 0;
}

bool __wrap_fgw_ranges_make_room(struct fgw_ranges *ranges, uint32_t limit)
{
    look(ranges);
    return __real_fgw_ranges_make_room(ranges, limit);
}

void __wrap_fgw_ranges_insert(struct fgw_ranges *ranges, struct fgw_range range)
{
    look(ranges);
    __real_fgw_ranges_insert(ranges, range);
}

void __wrap_fgw_ranges_erase(struct fgw_ranges *ranges, struct fgw_range *range)
{
    look(ranges);
    __real_fgw_ranges_erase(ranges, range);
}

void __wrap_fgw_ranges_erase_some(struct fgw_ranges *ranges, uint32_t first, uint32_t nr)
{
    look(ranges);
    __real_fgw_ranges_erase_some(ranges, first, nr);
}
