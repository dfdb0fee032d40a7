/* See enter.h. */
#define _GNU_SOURCE
#include "walls/enter.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "walls/lend.h"

int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data);
int umount2(const char *target, int flags);
#define DETACH 2

/* Device libraries read the path of their cache at their start, so it is the same for all tenants. */
static bool take_cache(const char *name)
{
    char source[PATH_MAX];
    if (strchr(name, '/') || *name == '.' || *name == '\0' ||
        snprintf(source, sizeof(source), FGW_WALLS_CACHES_AT "/%s", name) >= (int)sizeof(source)) {
        errno = EINVAL;
        return false;
    }
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    return mount(source, FGW_WALLS_CACHE_AT, NULL, MS_BIND, NULL) == 0 &&
           syscall(SYS_mount_setattr, AT_FDCWD, FGW_WALLS_CACHE_AT, 0, &attributes, sizeof(attributes)) == 0;
}

/* Also of a worker without a cache: the folder is no tenant's to see. */
static bool leave_caches(void)
{
    return umount2(FGW_WALLS_CACHES_AT, DETACH) == 0 || errno == ENOENT;
}

/* libc changes the user in all threads, and with root go its capabilities. */
static bool become(uint32_t uid)
{
    return setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0;
}

/* Of the one user of a user namespace. Wrong when: the device library has threads, which keep theirs: the right to
 * mount in this namespace, and no call to do so. */
static bool drop_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[2] = {{0}, {0}};
    return syscall(SYS_capset, &head, none) == 0;
}

int fgw_walls_become(const struct fgw_walls_tenant *tenant, const char **step)
{
    *step = "the nodes of other devices";
    const int error = fgw_walls_take_away(tenant->nodes);
    if (error) {
        return error;
    }
    *step = "its cache";
    if ((tenant->cache && !take_cache(tenant->cache)) || !leave_caches()) {
        return errno;
    }
    *step = "its user";
    if (tenant->uid ? !become(tenant->uid) : !drop_capabilities()) {
        return errno;
    }
    /* A program that starts as this user has it so: NVIDIA's services look at their clients. */
    *step = "what others of its user see of it";
    return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0 ? 0 : errno;
}

int fgw_walls_enter(const struct fgw_walls_tenant *tenant, const char **step)
{
    const int error = tenant->is_there ? 0 : fgw_walls_become(tenant, step);
    if (error) {
        return error;
    }
    *step = "its filter of system calls";
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || (tenant->has_filter && !fgw_walls_filter(tenant->is_soft))) {
        return errno;
    }
    return 0;
}
