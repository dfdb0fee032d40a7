/*
 * The worker's own walls, put up before it looks at anything a guest wrote. A worker that its guest takes over keeps
 * what a worker needs: its region, its control page, the device. It has no privileges, gains none, and the kernel
 * refuses it what no worker ever asks for.
 *
 * The filter denies by name instead of allowing by name: NVIDIA's driver is a closed program that changes, and softgpu
 * runs its compiler as a child. clone3 is said not to exist, because a filter cannot look at its flags; libc then uses
 * clone, whose flags it can.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loop/face.h"

#ifndef SYS_clone3
#define SYS_clone3 435
#endif

static const int denied_calls[] = {
    /* All workers are the same user: one must not end another. */
    SYS_kill,
    SYS_tkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    424 /* pidfd_send_signal */,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_bpf,
    SYS_add_key,
    SYS_keyctl,
    SYS_request_key,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_setns,
    SYS_unshare,
    SYS_perf_event_open,
    SYS_acct,
    SYS_quotactl,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_syslog,
    SYS_iopl,
    SYS_ioperm,
    SYS_userfaultfd,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_vhangup,
    SYS_mknod,
    SYS_mknodat,
    SYS_fanotify_init,
    SYS_lookup_dcookie,
    425 /* io_uring_setup */,
    426 /* io_uring_enter */,
    427 /* io_uring_register */,
    428 /* open_tree */,
    429 /* move_mount */,
    430 /* fsopen */,
    431 /* fsconfig */,
    432 /* fsmount */,
    433 /* fspick */,
    438 /* pidfd_getfd */,
    442 /* mount_setattr */,
};

#define NR_DENIED (sizeof(denied_calls) / sizeof(*denied_calls))
#define NEW_NAMESPACES                                                                                                 \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

#define LOAD(member)  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, member))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define FAIL(error)   RETURN(SECCOMP_RET_ERRNO | (error))

/* x86-64 only: another architecture has other numbers, and a build for one needs its own list. */
static bool filter_calls(void)
{
    struct sock_filter program[32 + 2 * NR_DENIED];
    uint16_t nr = 0;
    const struct sock_filter head[] = {
        LOAD(arch),  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0), RETURN(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1), /* the x32 numbers are a second way to
                                                                                everything */
        FAIL(EPERM), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),        FAIL(ENOSYS),
    };
    for (size_t i = 0; i < sizeof(head) / sizeof(*head); i++) {
        program[nr++] = head[i];
    }
    for (size_t i = 0; i < NR_DENIED; i++) {
        program[nr++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)denied_calls[i], 0, 1);
        program[nr++] = (struct sock_filter)FAIL(EPERM);
    }
    const struct sock_filter ending[] = {
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 4), /* abort() and thread cancellation: of our own */
        LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)getpid(), 1, 0),
        FAIL(EPERM),
        RETURN(SECCOMP_RET_ALLOW),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4),
        LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACES, 0, 1),
        FAIL(EPERM),
        RETURN(SECCOMP_RET_ALLOW),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 4),
        LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 1, 0),
        FAIL(EPERM),
        RETURN(SECCOMP_RET_ALLOW),
    };
    for (size_t i = 0; i < sizeof(ending) / sizeof(*ending); i++) {
        program[nr++] = ending[i];
    }
    struct sock_fprog filter = {.len = nr, .filter = program};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

int fgw_sandbox_early(int kept)
{
    const struct rlimit none = {0, 0};
    umask(077);
    prctl(PR_SET_TIMERSLACK, 1000ul, 0, 0, 0); /* naps while the GPU works are some ten microseconds long */
    if (setrlimit(RLIMIT_CORE, &none) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return errno;
    }
    if (kept > 3) {
        syscall(SYS_close_range, 3u, (unsigned int)kept - 1, 0u);
    }
    syscall(SYS_close_range, kept < 3 ? 3u : (unsigned int)kept + 1, ~0u, 0u);
    return 0;
}

int fgw_sandbox_enter(uint32_t uid, uint32_t gid)
{
    if (geteuid() == 0 && uid != 0 &&
        (setgroups(0, NULL) != 0 || setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0)) {
        return errno;
    }
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || !filter_calls()) {
        return errno;
    }
    return 0;
}
