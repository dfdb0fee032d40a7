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

void sgp_view_changed(uintptr_t start, uint64_t bytes, int protection)
{
    kept[now.nr_changes++ % SGP_VIEW_CHANGES] =
        (struct sgp_view_change){.start = start, .bytes = bytes, .protection = protection};
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
