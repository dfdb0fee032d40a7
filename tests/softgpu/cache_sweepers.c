/* Two processes that bound one folder of compiled code: the second one comes while the first is about to remove its
 * first file, and does all that it has to do. */
#include <stdbool.h>
#include <unistd.h>

static int second_unlinkat(int folder, const char *name, int flags);
#define unlinkat second_unlinkat
#include "code/cache.c"
#undef unlinkat

static const char *folder_of_both;

static int second_unlinkat(int folder, const char *name, int flags)
{
    const char *path = folder_of_both;
    folder_of_both = NULL;
    if (path) {
        sgp_cache_bound(path, "second");
    }
    return unlinkat(folder, name, flags);
}

void sgp_log(const char *topic, const char *format, ...)
{
    (void)topic;
    (void)format;
}

void bound_by_two(const char *path)
{
    folder_of_both = path;
    sgp_cache_bound(path, "first");
}
