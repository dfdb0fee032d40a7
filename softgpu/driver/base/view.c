/* See view.h. */
#include "base/view.h"

#include <stdlib.h>
#include <string.h>

static struct sgp_view_change kept[SGP_VIEW_CHANGES]; /* a ring */
static struct sgp_view now;

bool sgp_view_is_walled(void)
{
    static int answer; /* atomic; 0: not read yet. The setting is read once, since memory is mapped by it. */
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);

    if (!known) {
        const char *text = getenv("FAIRGV_SOFTGPU_WALL");

        known = text && !strcmp(text, "1") ? 1 : -1;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known > 0;
}

int sgp_view_map_flag(void)
{
    return sgp_view_is_walled() ? MAP_SHARED : MAP_PRIVATE;
}

void sgp_view_outdate(void)
{
    __atomic_fetch_add(&now.age, 1, __ATOMIC_RELAXED);
}

static void keep(struct sgp_view_change change)
{
    kept[now.nr_changes++ % SGP_VIEW_CHANGES] = change;
}

void sgp_view_changed(uintptr_t start, uint64_t bytes, int protection)
{
    keep((struct sgp_view_change){.start = start, .bytes = bytes, .protection = protection});
}

void sgp_view_mapped(uintptr_t start, uint64_t bytes, uintptr_t source)
{
    keep((struct sgp_view_change){.start = start, .bytes = bytes, .source = source, .protection = PROT_NONE});
}

void sgp_view_unmapped(uintptr_t start, uint64_t bytes)
{
    keep((struct sgp_view_change){.start = start, .bytes = bytes, .source = SGP_VIEW_GONE});
}

bool sgp_view_make(const struct sgp_view_change *change)
{
    void *start = (void *)change->start;

    if (change->source == SGP_VIEW_GONE) {
        return mmap(start, change->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) !=
               MAP_FAILED;
    }
    /* Of 0 bytes that are shared, mremap makes another mapping, and leaves the first one. */
    if (change->source &&
        mremap((void *)change->source, 0, change->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, start) == MAP_FAILED) {
        return false;
    }
    return !mprotect(start, change->bytes, change->protection);
}

struct sgp_view sgp_view_now(void)
{
    return (struct sgp_view){.age = __atomic_load_n(&now.age, __ATOMIC_RELAXED), .nr_changes = now.nr_changes};
}

bool sgp_view_catch_up(struct sgp_view *view, struct sgp_view_change changes[SGP_VIEW_CHANGES], uint32_t *nr)
{
    struct sgp_view latest = sgp_view_now();

    *nr = 0;
    if (view->age != latest.age || latest.nr_changes - view->nr_changes > SGP_VIEW_CHANGES) {
        return false;
    }
    for (uint64_t i = view->nr_changes; i < latest.nr_changes; i++) {
        changes[(*nr)++] = kept[i % SGP_VIEW_CHANGES];
    }
    *view = latest;
    return true;
}
