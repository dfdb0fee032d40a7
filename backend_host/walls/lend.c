/*
 * See lend.h. A mount namespace is entered by a process that shares its folders with no thread, so each change is made
 * by a child of its own. The worker's root is read-only but for that moment, and root's also then.
 */
#define _GNU_SOURCE
#include "walls/lend.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int umount2(const char *target, int flags);
#define DETACH 2

static bool set_read_only(bool is_read_only)
{
    struct mount_attr change = {.attr_set = is_read_only ? MOUNT_ATTR_RDONLY : 0,
                                .attr_clr = is_read_only ? 0 : MOUNT_ATTR_RDONLY};
    return syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &change, sizeof(change)) == 0;
}

static bool put(int node, const char *path)
{
    const int file = open(path, O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file < 0) {
        return false;
    }
    close(file);
    if (syscall(SYS_move_mount, node, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) == 0) {
        return true;
    }
    const int error = errno;
    unlink(path);
    errno = error;
    return false;
}

static bool take_away(const char *path)
{
    return umount2(path, DETACH) == 0 && unlink(path) == 0;
}

/* In the child; an errno. `node` -1: away. A process without a root of its own has that of all. */
static int change_root(int pidfd, const char *path, int node)
{
    struct stat ours, its;
    if (stat("/", &ours) != 0 || setns(pidfd, CLONE_NEWNS) != 0 || chdir("/") != 0 || stat("/", &its) != 0) {
        return errno;
    }
    if (ours.st_dev == its.st_dev && ours.st_ino == its.st_ino) {
        return EXDEV;
    }
    if (!set_read_only(false)) {
        return errno;
    }
    const int error = (node >= 0 ? put(node, path) : take_away(path)) ? 0 : errno;
    return set_read_only(true) ? error : errno;
}

int fgw_walls_take_away(const char *const *paths)
{
    int error = 0;
    if (!*paths) {
        return 0;
    }
    if (!set_read_only(false)) {
        return errno;
    }
    for (; *paths && !error; paths++) {
        error = take_away(*paths) ? 0 : errno;
    }
    return set_read_only(true) ? error : errno;
}

static int in_child(int pidfd, const char *path, int node)
{
    int status;
    const pid_t child = fork();
    if (child < 0) {
        return errno;
    }
    if (child == 0) {
        _exit(change_root(pidfd, path, node));
    }
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return errno;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

int fgw_walls_lend(int pidfd, const char *path)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC};
    const int node = (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (node < 0) {
        return errno;
    }
    const int error = syscall(SYS_mount_setattr, node, "", AT_EMPTY_PATH, &attributes, sizeof(attributes)) != 0
                          ? errno
                          : in_child(pidfd, path, node);
    close(node);
    return error;
}

int fgw_walls_take_back(int pidfd, const char *path)
{
    return in_child(pidfd, path, -1);
}
