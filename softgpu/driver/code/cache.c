#include "code/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/driver.h"

#define DEFAULT_CACHE_BYTES (1ull << 30)
#define ABANDONED_SECONDS   3600

static bool is_private_directory(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           !(status.st_mode & 022);
}

/* As mkdir -p, what is made with access for the user alone. */
static bool make_directory(const char *path)
{
    char partial[PATH_MAX];

    if (snprintf(partial, sizeof(partial), "%s", path) >= (int)sizeof(partial)) {
        return false;
    }
    for (char *slash = strchr(partial + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(partial, 0700) && errno != EEXIST && errno != EROFS && errno != EACCES) {
            return false;
        }
        *slash = '/';
    }
    if (mkdir(partial, 0700) && errno != EEXIST) {
        return false;
    }
    return is_private_directory(partial) && access(partial, W_OK | X_OK) == 0;
}

static bool try_directory(char path[PATH_MAX], const char *base, const char *suffix)
{
    return base && *base == '/' && snprintf(path, PATH_MAX, "%s%s", base, suffix) < PATH_MAX && make_directory(path);
}

static bool find_directory(char path[PATH_MAX])
{
    const char *wanted = getenv("FAIRGV_SOFTGPU_CACHE");

    if (wanted && *wanted) {
        return try_directory(path, wanted, "");
    }
    if (try_directory(path, getenv("XDG_CACHE_HOME"), "/fairgv/softgpu") ||
        try_directory(path, getenv("HOME"), "/.cache/fairgv/softgpu")) {
        return true;
    }
    snprintf(path, PATH_MAX, "/tmp/fairgv-softgpu-%u", (unsigned int)geteuid());
    return make_directory(path);
}

bool sgp_cache_is_trusted(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
           !(status.st_mode & 022) && status.st_size > 0;
}

static uint64_t cache_bound_bytes(void)
{
    const char *text = getenv("FAIRGV_SOFTGPU_CACHE_BYTES");
    unsigned long long value = text ? strtoull(text, NULL, 10) : 0;

    return value ? value : DEFAULT_CACHE_BYTES;
}

struct cached_file {
    char name[64];
    uint64_t bytes;
    int64_t used_ns;
};

static int by_age(const void *left, const void *right)
{
    const struct cached_file *a = left, *b = right;

    return a->used_ns < b->used_ns ? -1 : a->used_ns > b->used_ns;
}

/* A folder that a killed compiler worked in: files, one level. */
static void sweep_folder(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!folder) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    while ((entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) {
            unlinkat(fd, entry->d_name, 0);
        }
    }
    closedir(folder);
    unlinkat(parent, name, AT_REMOVEDIR);
}

/* What a killed process left behind; true: there was nothing more to know about this entry. */
static bool sweep(int directory, const char *name, const struct stat *status)
{
    bool is_old = time(NULL) - status->st_mtime > ABANDONED_SECONDS;

    if (S_ISDIR(status->st_mode) && !strncmp(name, ".softgpu-", 9) && is_old) {
        sweep_folder(directory, name);
    } else if (S_ISREG(status->st_mode) && !strncmp(name, "tmp.", 4) && is_old) {
        unlinkat(directory, name, 0);
    }
    return !S_ISREG(status->st_mode) || !strncmp(name, "tmp.", 4);
}

/* Sorted, the longest unused first; removes what killed processes left on the way. */
static size_t cache_list(DIR *directory, struct cached_file **files, uint64_t *bytes)
{
    size_t nr = 0, max = 0;
    struct dirent *entry;
    struct stat status;

    while ((entry = readdir(directory))) {
        size_t length = strlen(entry->d_name);

        if (length >= sizeof((*files)->name) ||
            fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) ||
            sweep(dirfd(directory), entry->d_name, &status)) {
            continue;
        }
        if (length < 4 || strcmp(entry->d_name + length - 3, ".so")) {
            continue;
        }
        if (nr == max) {
            struct cached_file *grown = realloc(*files, (max = max ? 2 * max : 64) * sizeof(*grown));

            if (!grown) {
                break;
            }
            *files = grown;
        }
        memcpy((*files)[nr].name, entry->d_name, length + 1);
        (*files)[nr].bytes = (uint64_t)status.st_size;
        (*files)[nr++].used_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
        *bytes += (uint64_t)status.st_size;
    }
    return nr;
}

/* Another process that bounds the same folder may have been first. */
static bool remove_file(DIR *directory, const char *name)
{
    return unlinkat(dirfd(directory), name, 0) == 0 || errno == ENOENT;
}

void sgp_cache_bound(const char *path, const char *keep)
{
    DIR *directory = opendir(path);
    struct cached_file *files = NULL;
    uint64_t bytes = 0, bound = cache_bound_bytes();
    size_t nr;

    if (!directory) {
        return;
    }
    nr = cache_list(directory, &files, &bytes);
    if (bytes > bound) {
        qsort(files, nr, sizeof(*files), by_age);
        for (size_t i = 0; i < nr && bytes > bound; i++) {
            if (strncmp(files[i].name, keep, SGP_CACHE_KEY_CHARACTERS - 1) && remove_file(directory, files[i].name)) {
                bytes -= files[i].bytes;
            }
        }
    }
    free(files);
    closedir(directory);
}

bool sgp_cache_directory(char directory[PATH_MAX])
{
    bool is_found = find_directory(directory);

    if (!is_found) {
        sgp_log("compile",
                "no directory for compiled kernels that belongs to this user alone; FAIRGV_SOFTGPU_CACHE may name one");
    }
    return is_found;
}
