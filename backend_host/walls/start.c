/* See start.h: the new process and its walls. Between clone and execve it is a copy of a process with threads: nothing
 * here takes a lock or allocates. */
#define _GNU_SOURCE
#include "walls/start.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4u
#endif

/* What the new process says when it cannot go on. */
struct failure {
    int error;
    char step[300];
};

/* Headers of older kernels lack these; the version decides what is asked for. */
#define NET_BIND      (1ull << 0)
#define NET_CONNECT   (1ull << 1)
#define SCOPE_SOCKETS (1ull << 0) /* no abstract UNIX socket of others */
#define SCOPE_SIGNALS (1ull << 1)
#define NET_SINCE     4
#define SCOPES_SINCE  6
struct ruleset {
    uint64_t files, net, scopes;
};

int fgw_walls_landlock_version(void)
{
    const long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return version < 0 ? 0 : (int)version;
}

/* No files: who is restricted in files may mount nothing, and the worker mounts its cache later. Its root has nothing
 * that such a rule would take away. */
static bool enter_landlock(void)
{
    const int version = fgw_walls_landlock_version();
    const struct ruleset rules = {
        .net = version >= NET_SINCE ? NET_BIND | NET_CONNECT : 0,
        .scopes = version >= SCOPES_SINCE ? SCOPE_SOCKETS | SCOPE_SIGNALS : 0,
    };
    const size_t bytes = version >= SCOPES_SINCE ? sizeof(rules) : offsetof(struct ruleset, scopes);
    const int ruleset = (int)syscall(SYS_landlock_create_ruleset, &rules, bytes, 0);
    return ruleset >= 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) == 0 && close(ruleset) == 0;
}

static bool write_file(const char *path, const char *text)
{
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    const bool is_written = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    const int error = errno;
    if (file >= 0) {
        close(file);
    }
    errno = error;
    return is_written;
}

/* In a user namespace there is one user, whom the inside calls 0 and the outside by the number that we have there. */
static bool map_user(uint32_t uid, uint32_t gid)
{
    char users[32], groups[32];
    snprintf(users, sizeof(users), "0 %u 1", uid);
    snprintf(groups, sizeof(groups), "0 %u 1", gid);
    return write_file("/proc/self/setgroups", "deny") && write_file("/proc/self/uid_map", users) &&
           write_file("/proc/self/gid_map", groups);
}

/* What a worker needs until it knows its guest: to become that guest's user, and to mount its cache. */
static bool drop_privileges(void)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return false;
    }
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++) {
        const bool is_kept = capability == CAP_SETUID || capability == CAP_SETGID || capability == CAP_SYS_ADMIN;
        if (!is_kept && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) {
            /* An ordinary user without a user namespace has none to drop. */
            return errno == EPERM && geteuid() != 0;
        }
    }
    return true;
}

static bool set_limits(const struct fgw_walls_plan *plan)
{
    for (uint32_t i = 0; i < plan->nr_limits; i++) {
        struct rlimit now;
        if (getrlimit((unsigned int)plan->limits[i].resource, &now) != 0) {
            return false;
        }
        const rlim_t most = plan->limits[i].most < now.rlim_max ? plan->limits[i].most : now.rlim_max;
        if (setrlimit((unsigned int)plan->limits[i].resource, &(struct rlimit){most, most}) != 0) {
            return false;
        }
    }
    return true;
}

static bool arrange_descriptors(const struct fgw_walls_plan *plan)
{
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    return nothing >= 0 && (plan->error_fd < 0 || dup2(plan->error_fd, STDERR_FILENO) >= 0) &&
           dup2(nothing, STDIN_FILENO) >= 0 && dup2(nothing, STDOUT_FILENO) >= 0 &&
           syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC) == 0 &&
           (plan->kept_fd < 0 || fcntl(plan->kept_fd, F_SETFD, 0) == 0);
}

/* Returns the name of the step that failed, with errno; never when all is well. */
static const char *become(const struct fgw_walls_plan *plan, uint32_t uid, uint32_t gid, const char **at)
{
    sigset_t none;
    sigemptyset(&none);
    umask(022);
    if (setsid() < 0 || sigprocmask(SIG_SETMASK, &none, NULL) != 0) {
        return "a session";
    }
    if ((plan->namespaces & CLONE_NEWUSER) && !map_user(uid, gid)) {
        return "the map of its user";
    }
    if (plan->has_root && !fgw_walls_make_root(plan, at)) {
        return "a root folder";
    }
    *at = NULL;
    if (!arrange_descriptors(plan)) {
        return "its descriptors";
    }
    if (!set_limits(plan)) {
        return "its limits";
    }
    if (!drop_privileges()) {
        return "fewer privileges";
    }
    if (plan->has_landlock && !enter_landlock()) {
        return "Landlock";
    }
    umask(077);
    prctl(PR_SET_TIMERSLACK, 1000ul, 0, 0, 0); /* naps while the GPU works are some ten microseconds long */
    if (chdir(plan->folder) != 0) {
        *at = plan->folder;
        return "its folder";
    }
    execve(plan->command[0], plan->command, plan->environment);
    *at = plan->command[0];
    return "its program";
}

static void fail(int pipe_fd, const char *step, const char *at)
{
    struct failure failure = {.error = errno};
    snprintf(failure.step, sizeof(failure.step), "%s%s%s", step, at ? ", " : "", at ? at : "");
    _exit(write(pipe_fd, &failure, sizeof(failure)) == sizeof(failure) ? 127 : 126);
}

int fgw_walls_start(const struct fgw_walls_plan *plan, int *pidfd, char *error, uint32_t error_bytes)
{
    const uint32_t uid = geteuid(), gid = getegid();
    struct failure failure;
    int news[2];
    *pidfd = -1;
    if (pipe2(news, O_CLOEXEC) != 0) {
        snprintf(error, error_bytes, "a pipe: %s", strerror(errno));
        return -1;
    }
    /* Not clone3: a service that may make some namespaces only is told that there is none, as no filter sees its flags.
     */
    const unsigned long flags = plan->namespaces | CLONE_PIDFD | SIGCHLD;
    const long pid = syscall(SYS_clone, flags, NULL, pidfd, NULL, 0UL);
    if (pid == 0) {
        const char *at = NULL;
        const char *step = become(plan, uid, gid, &at);
        fail(news[1], step, at);
    }
    const int failed = errno;
    close(news[1]);
    if (pid < 0) {
        close(news[0]);
        snprintf(error, error_bytes, "a process in namespaces of its own: %s", strerror(failed));
        return -1;
    }
    ssize_t got;
    do {
        got = read(news[0], &failure, sizeof(failure));
    } while (got < 0 && errno == EINTR);
    close(news[0]);
    if (got == 0) {
        return (int)pid;
    }
    while (waitpid((pid_t)pid, NULL, 0) < 0 && errno == EINTR) {
    }
    close(*pidfd);
    *pidfd = -1;
    failure.step[sizeof(failure.step) - 1] = '\0';
    snprintf(error, error_bytes, "%s: %s", failure.step, strerror(got == sizeof(failure) ? failure.error : EIO));
    return -1;
}
