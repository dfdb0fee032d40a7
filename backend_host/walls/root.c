/*
 * The root folder of a worker: memory, into which what the worker needs is bound at the paths that it has outside.
 * Folders on the way are new and open to all, so a closed folder above Python or above this package is no hindrance,
 * and whatever else is in it is not there.
 *
 * It is made on top of /tmp, with the old root below it, so that each source is found at OLD and its path. At the end
 * the old root is taken away.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "walls/start.h"

/* <sys/mount.h> and <linux/mount.h> cannot both be included with every libc. */
int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data);
int umount2(const char *target, int flags);
#define DETACH 2

#define OLD          "/.outside"
#define ROOT_OPTIONS "mode=0755,size=1m,nr_inodes=4096" /* folders, links and empty files are all that is in it */

static bool set_attributes(const char *path, uint64_t attributes, bool with_those_below)
{
    struct mount_attr set = {.attr_set = attributes};
    return syscall(SYS_mount_setattr, AT_FDCWD, path, with_those_below ? AT_RECURSIVE : 0, &set, sizeof(set)) == 0;
}

static bool make_folders_to(const char *path)
{
    char partial[PATH_MAX];
    if (snprintf(partial, sizeof(partial), "%s", path) >= (int)sizeof(partial)) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (char *slash = strchr(partial + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(partial, 0755) != 0 && errno != EEXIST && errno != EROFS) {
            return false;
        }
        *slash = '/';
    }
    return true;
}

static bool make_folder(const char *path)
{
    return mkdir(path, 0755) == 0 || errno == EEXIST || errno == EROFS;
}

static bool make_file(const char *path)
{
    const int file = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0644);
    return file >= 0 && close(file) == 0;
}

static bool bind(const char *from, const char *path, uint64_t attributes)
{
    char source[PATH_MAX];
    struct stat status;
    if (snprintf(source, sizeof(source), OLD "%s", from) >= (int)sizeof(source)) {
        errno = ENAMETOOLONG;
        return false;
    }
    return stat(source, &status) == 0 && (S_ISDIR(status.st_mode) ? make_folder(path) : make_file(path)) &&
           mount(source, path, NULL, MS_BIND | MS_REC, NULL) == 0 && set_attributes(path, attributes, true);
}

static bool make_entry(const struct fgw_walls_entry *entry)
{
    const char *path = entry->path, *other = entry->other;
    if (!make_folders_to(path)) {
        return false;
    }
    switch (entry->kind) {
    case FGW_WALLS_READ:
        return bind(other ? other : path, path, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    case FGW_WALLS_DEVICE:
        return bind(path, path, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    case FGW_WALLS_WRITE:
        return bind(path, path, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    case FGW_WALLS_LINK:
        return symlink(other, path) == 0;
    case FGW_WALLS_MEMORY:
        return make_folder(path) && mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, other) == 0;
    case FGW_WALLS_PROCESSES:
        return make_folder(path) && mount("proc", path, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, other) == 0;
    case FGW_WALLS_FOLDER:
        return make_folder(path);
    case FGW_WALLS_CACHES:
        return bind(other, path, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    default:
        errno = EINVAL;
        return false;
    }
}

bool fgw_walls_make_root(const struct fgw_walls_plan *plan, const char **at)
{
    *at = "/";
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, ROOT_OPTIONS) != 0 || mkdir("/tmp" OLD, 0700) != 0 ||
        syscall(SYS_pivot_root, "/tmp", "/tmp" OLD) != 0 || chdir("/") != 0) {
        return false;
    }
    for (uint32_t i = 0; i < plan->nr_entries; i++) {
        *at = plan->entries[i].path;
        if (!make_entry(&plan->entries[i])) {
            return false;
        }
    }
    *at = OLD;
    return umount2(OLD, DETACH) == 0 && rmdir(OLD) == 0 && set_attributes("/", MOUNT_ATTR_RDONLY, false);
}
