/*
 * What a process gives up before it runs kernels of others: every memory that processes share but what kernels may use,
 * every descriptor but two, and every system call but those that running kernels takes. What it keeps in private memory
 * is a copy.
 *
 * The filter allows by name. A thread may be made, a process may not; no memory may be executed that was not before;
 * nothing may be opened, sent to anybody else, or signalled. What is not allowed fails with EPERM, since C libraries
 * try calls of which they can do without; clone3 is said not to exist, as a filter cannot look at its flags.
 *
 * Wrong when: /proc is not mounted. Then it is not known what is shared, and no kernel runs.
 */
#include "runtime/confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mappings.h"
#include "base/reach.h"
#include "memory/memory_map.h"

#define NEW_NAMESPACES                                                                                                 \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

/* Of the standard error output, where that is a file: a worker of FairGV's keeps as much of what kernels say. */
#define MAX_FILE_BYTES (UINT64_C(64) << 20)

static const int allowed_calls[] = {
    SYS_read,
    SYS_write,
    SYS_recvfrom,
    SYS_sendto,
    SYS_futex,
    SYS_brk,
    SYS_munmap,
    SYS_madvise,
    SYS_mremap,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_clock_gettime,
    SYS_gettid,
    SYS_getpid,
    SYS_rt_sigreturn,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_sigaltstack,
    SYS_set_robust_list,
    334 /* rseq */,
    SYS_exit,
    SYS_exit_group,
};

#define NR_ALLOWED (sizeof(allowed_calls) / sizeof(*allowed_calls))

#define LOAD(member)             BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, member))
#define RETURN(value)            BPF_STMT(BPF_RET | BPF_K, value)
#define FAIL(error)              RETURN(SECCOMP_RET_ERRNO | (error))
#define ALLOW                    RETURN(SECCOMP_RET_ALLOW)
#define IF(test, value, yes, no) BPF_JUMP(BPF_JMP | (test) | BPF_K, value, yes, no)

static bool filter_calls(void)
{
    const struct sock_filter head[] = {
        LOAD(arch),
        IF(BPF_JEQ, AUDIT_ARCH_X86_64, 1, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
        IF(BPF_JEQ, 435 /* clone3 */, 0, 1),
        FAIL(ENOSYS),
        IF(BPF_JEQ, SYS_clone, 0, 5),
        LOAD(args[0]),
        IF(BPF_JSET, NEW_NAMESPACES, 2, 0),
        IF(BPF_JSET, CLONE_THREAD, 0, 1),
        ALLOW,
        FAIL(EPERM),
        IF(BPF_JEQ, SYS_mmap, 1, 0),
        IF(BPF_JEQ, SYS_mprotect, 0, 4),
        LOAD(args[2]),
        IF(BPF_JSET, PROT_EXEC, 0, 1),
        FAIL(EPERM),
        ALLOW,
    };
    struct sock_filter program[sizeof(head) / sizeof(*head) + 2 * NR_ALLOWED + 1];
    struct sock_fprog filter = {.len = sizeof(program) / sizeof(*program), .filter = program};
    size_t nr = sizeof(head) / sizeof(*head);

    memcpy(program, head, sizeof(head));
    for (size_t i = 0; i < NR_ALLOWED; i++) {
        program[nr++] = (struct sock_filter)IF(BPF_JEQ, (uint32_t)allowed_calls[i], 0, 1);
        program[nr++] = (struct sock_filter)ALLOW;
    }
    program[nr] = (struct sock_filter)FAIL(EPERM);
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
}

static bool is_for_kernels(const struct sgp_mapping *mapping)
{
    const struct sgp_allocation *allocation = sgp_memory_after(mapping->start);

    return sgp_reach_holds(mapping->start, mapping->end - mapping->start) || sgp_reservation_of(mapping->start, 1) ||
           (allocation && allocation->kind == SGP_MEMORY_REGISTERED && allocation->start < mapping->end);
}

/* Unmaps what is shared with any process and is not kernels'. */
static bool leave(const struct sgp_mapping *mapping, void *unused)
{
    (void)unused;
    return !mapping->is_shared || is_for_kernels(mapping) ||
           !munmap((void *)mapping->start, mapping->end - mapping->start);
}

static bool descriptors_leave(int kept)
{
    for (int fd = 0; fd < STDERR_FILENO; fd++) {
        if (fd != kept) {
            close(fd);
        }
    }
    return (kept <= STDERR_FILENO + 1 || !syscall(SYS_close_range, STDERR_FILENO + 1u, (unsigned int)kept - 1, 0u)) &&
           !syscall(SYS_close_range, (unsigned int)(kept < STDERR_FILENO ? STDERR_FILENO : kept) + 1, ~0u, 0u);
}

bool sgp_confine(int socket, int parent)
{
    const struct rlimit none = {0, 0}, file = {MAX_FILE_BYTES, MAX_FILE_BYTES};

    return !prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) && getppid() == parent && sgp_mappings_visit(leave, NULL) &&
           descriptors_leave(socket) && !setrlimit(RLIMIT_CORE, &none) && !setrlimit(RLIMIT_FSIZE, &file) &&
           signal(SIGXFSZ, SIG_IGN) != SIG_ERR && filter_calls();
}
