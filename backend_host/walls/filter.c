/*
 * The system calls of a worker that serves a guest. What is not on the list fails with EPERM, what is newer than the
 * list with ENOSYS, so that libc takes an older way; nothing of it ends the worker, because a device library may try.
 * Numbers of other architectures do end it: no honest code has them.
 *
 * Two lists beyond the common one. softgpu starts compilers as children, so `soft` may execute files: its own read-only
 * ones, and what a kernel's code could do anyway. NVIDIA's library is closed and changes: what is known of it is
 * allowed with some room, and no process is started.
 *
 * clone3 is said not to exist, because a filter cannot look at its flags; libc then uses clone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "walls/enter.h"

/* Numbers and values that headers of older systems lack. */
#define NR_CLONE3            435
#define NR_CLOSE_RANGE       436
#define NR_FACCESSAT2        439
#define NR_LANDLOCK_CREATE   444
#define NR_LANDLOCK_ADD      445
#define NR_LANDLOCK_RESTRICT 446
#define NR_FUTEX_WAITV       449
#define NR_RSEQ              334
#define NR_KNOWN             450 /* the list was written knowing the calls below */
#define SET_VMA              0x53564d41
#define X32                  0x40000000u

static const int common_calls[] = {
    /* descriptors */
    SYS_read,
    SYS_write,
    SYS_pread64,
    SYS_pwrite64,
    SYS_readv,
    SYS_writev,
    SYS_preadv,
    SYS_pwritev,
    SYS_lseek,
    SYS_close,
    NR_CLOSE_RANGE,
    SYS_dup,
    SYS_dup2,
    SYS_dup3,
    SYS_pipe,
    SYS_pipe2,
    SYS_poll,
    SYS_ppoll,
    SYS_select,
    SYS_pselect6,
    SYS_epoll_create,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_wait,
    SYS_epoll_pwait,
    SYS_eventfd2,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_timerfd_gettime,
    SYS_flock,
    SYS_fsync,
    SYS_fdatasync,
    SYS_sendfile,
    SYS_copy_file_range,
    SYS_fadvise64,
    /* files: which there are is the root's affair */
    SYS_open,
    SYS_openat,
    SYS_creat,
    SYS_stat,
    SYS_fstat,
    SYS_lstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_statfs,
    SYS_fstatfs,
    SYS_access,
    SYS_faccessat,
    NR_FACCESSAT2,
    SYS_readlink,
    SYS_readlinkat,
    SYS_getdents,
    SYS_getdents64,
    SYS_getcwd,
    SYS_chdir,
    SYS_fchdir,
    SYS_mkdir,
    SYS_mkdirat,
    SYS_rmdir,
    SYS_rename,
    SYS_renameat,
    SYS_renameat2,
    SYS_unlink,
    SYS_unlinkat,
    SYS_link,
    SYS_linkat,
    SYS_symlink,
    SYS_symlinkat,
    SYS_chmod,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_utimensat,
    SYS_truncate,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_umask,
    /* memory; code is made and loaded while it runs, so PROT_EXEC is not looked at */
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_madvise,
    SYS_msync,
    SYS_mincore,
    SYS_mlock,
    SYS_mlock2,
    SYS_munlock,
    SYS_brk,
    SYS_memfd_create,
    /* threads, time, the process itself */
    SYS_futex,
    NR_FUTEX_WAITV,
    SYS_set_robust_list,
    SYS_get_robust_list,
    NR_RSEQ,
    SYS_membarrier,
    SYS_set_tid_address,
    SYS_arch_prctl,
    SYS_exit,
    SYS_exit_group,
    SYS_restart_syscall,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_setaffinity,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_getcpu,
    SYS_getpid,
    SYS_getppid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getresuid,
    SYS_getresgid,
    SYS_getgroups,
    SYS_getpgrp,
    SYS_getpgid,
    SYS_getsid,
    SYS_getpriority,
    SYS_getrusage,
    SYS_getrlimit,
    SYS_times,
    SYS_uname,
    SYS_sysinfo,
    SYS_getrandom,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_time,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigpending,
    SYS_rt_sigtimedwait,
    SYS_rt_sigsuspend,
    SYS_sigaltstack,
    SYS_pause,
    /* bells: a write that never blocks (ivshmem/src/host_bell.c) */
    SYS_io_setup,
    SYS_io_submit,
    SYS_io_getevents,
    SYS_io_destroy,
    /* the daemon's socket */
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_sendto,
    SYS_recvfrom,
    SYS_shutdown,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_getsockname,
    SYS_getpeername,
};

/* Compilers and the process that kernels run in: children, a socket to it, signals in the namespace, what Python asks,
 * and what restricts a process further. */
static const int soft_calls[] = {
    SYS_execve,  SYS_vfork,          SYS_fork,        SYS_wait4,
    SYS_waitid,  SYS_socketpair,     SYS_kill,        SYS_tgkill,
    SYS_setsid,  SYS_setpgid,        SYS_setrlimit,   SYS_prlimit64,
    SYS_seccomp, NR_LANDLOCK_CREATE, NR_LANDLOCK_ADD, NR_LANDLOCK_RESTRICT,
};

/* Known of NVIDIA's library beyond files, memory and ioctl: policies of memory, sockets to its own services. */
static const int cuda_calls[] = {
    SYS_get_mempolicy,
    SYS_set_mempolicy,
    SYS_mbind,
    SYS_move_pages,
    SYS_mlockall,
    SYS_munlockall,
    SYS_socketpair,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_eventfd,
    SYS_signalfd4,
    SYS_inotify_init1,
    SYS_inotify_add_watch,
    SYS_inotify_rm_watch,
    SYS_wait4,
    SYS_timer_create,
    SYS_timer_settime,
    SYS_timer_delete,
    SYS_getxattr,
    SYS_personality,
};

#define LENGTH(list) (sizeof(list) / sizeof(*(list)))
#define NEW_NAMESPACES                                                                                                 \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

/* Flags, duplicates and seals. Not who is sent a signal about a descriptor: F_SETOWN, F_SETOWN_EX, F_SETSIG. Locks can
 * be asked for and not be taken: who takes another worker's (page/lives.h) has it pass for alive. */
static const uint32_t fcntl_commands[] = {
    F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD,     F_SETFD,     F_GETFL,      F_SETFL,
    F_GETLK, F_OFD_GETLK,     F_ADD_SEALS, F_GET_SEALS, F_GETPIPE_SZ,
};
/* softgpu's processes take turns by locks of its state file. */
static const uint32_t soft_fcntl_commands[] = {F_OFD_SETLK, F_OFD_SETLKW};
static const uint32_t prctl_options[] = {
    PR_SET_NAME,     PR_GET_NAME,         PR_SET_TIMERSLACK,   PR_GET_TIMERSLACK, PR_SET_PDEATHSIG, PR_GET_DUMPABLE,
    PR_CAPBSET_READ, PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, PR_SET_SECCOMP,    SET_VMA,
};
static const uint32_t ioctl_commands[] = {FIONBIO, FIOCLEX, FIONCLEX, FIONREAD};

/* NVIDIA's requests have the type 'F', those of its unified memory have none. 0x46 is the framebuffer's, too, whose
 * devices are not in the worker's root. */
static const uint32_t ioctl_types[] = {'F' << 8, 0};
#define IOCTL_TYPE 0xff00u

struct program {
    struct sock_filter code[512];
    uint16_t nr;
};

static void add(struct program *program, struct sock_filter statement)
{
    program->code[program->nr++] = statement;
}

#define STATEMENT(...) (struct sock_filter) BPF_STMT(__VA_ARGS__)
#define JUMP(...)      (struct sock_filter) BPF_JUMP(__VA_ARGS__)
#define LOAD(member)   STATEMENT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, member))
/* The low half: x86 is little-endian. The kernel itself takes no more of an int. */
#define ARGUMENT(number)                                                                                               \
    STATEMENT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (number)))
#define HIGH_HALF(number)                                                                                              \
    STATEMENT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (number) + 4))
#define RETURN(value) STATEMENT(BPF_RET | BPF_K, (uint32_t)(value))
#define FAIL(error)   RETURN(SECCOMP_RET_ERRNO | (error))

static void allow_call(struct program *program, int number)
{
    add(program, JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1));
    add(program, RETURN(SECCOMP_RET_ALLOW));
}

/* Of the value that was loaded last. */
static void allow_values(struct program *program, const uint32_t *values, size_t nr)
{
    for (size_t i = 0; i < nr; i++) {
        allow_call(program, (int)values[i]);
    }
}

/* Begins the rules for one call, which `end_rules` ends: whoever falls through fails. */
static uint16_t begin_rules(struct program *program, int number)
{
    add(program, JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 0));
    return program->nr;
}

static void end_rules(struct program *program, uint16_t start, uint32_t error)
{
    add(program, FAIL(error));
    program->code[start - 1].jf = (uint8_t)(program->nr - start);
}

static void allow_listed(struct program *program, int number, uint32_t argument, const uint32_t *values, size_t nr,
                         uint32_t error)
{
    const uint16_t start = begin_rules(program, number);
    add(program, ARGUMENT(argument));
    allow_values(program, values, nr);
    end_rules(program, start, error);
}

static void allow_fcntl(struct program *program, bool is_soft)
{
    const uint16_t start = begin_rules(program, SYS_fcntl);
    add(program, ARGUMENT(1));
    allow_values(program, fcntl_commands, LENGTH(fcntl_commands));
    allow_values(program, soft_fcntl_commands, is_soft ? LENGTH(soft_fcntl_commands) : 0);
    end_rules(program, start, EPERM);
}

static void allow_ioctl(struct program *program, bool is_soft)
{
    const uint16_t start = begin_rules(program, SYS_ioctl);
    add(program, ARGUMENT(1));
    allow_values(program, ioctl_commands, LENGTH(ioctl_commands));
    if (!is_soft) {
        add(program, STATEMENT(BPF_ALU | BPF_AND | BPF_K, IOCTL_TYPE));
        allow_values(program, ioctl_types, LENGTH(ioctl_types));
    }
    end_rules(program, start, ENOTTY); /* as a file says that is no terminal */
}

/* Threads, and where there are compilers, processes; no namespaces. */
static void allow_clone(struct program *program, bool is_soft)
{
    const uint16_t start = begin_rules(program, SYS_clone);
    add(program, ARGUMENT(0));
    add(program, JUMP(BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACES, 2, 0));
    add(program, JUMP(BPF_JMP | BPF_JSET | BPF_K, is_soft ? ~0u : CLONE_THREAD, 0, 1));
    add(program, RETURN(SECCOMP_RET_ALLOW));
    end_rules(program, start, EPERM);
}

/* To read one's own limits, as libc does. */
static void allow_reading_limits(struct program *program)
{
    const uint16_t start = begin_rules(program, SYS_prlimit64);
    add(program, ARGUMENT(0));
    add(program, JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 5));
    add(program, ARGUMENT(2));
    add(program, JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3));
    add(program, HIGH_HALF(2));
    allow_call(program, 0);
    end_rules(program, start, EPERM);
}

static void make(struct program *program, bool is_soft)
{
    const uint32_t self = (uint32_t)getpid(), unix_only = AF_UNIX;
    add(program, LOAD(arch));
    add(program, JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
    add(program, RETURN(SECCOMP_RET_KILL_PROCESS));
    add(program, LOAD(nr));
    add(program, JUMP(BPF_JMP | BPF_JGE | BPF_K, X32, 0, 1)); /* a second way to everything */
    add(program, FAIL(EPERM));
    add(program, JUMP(BPF_JMP | BPF_JEQ | BPF_K, NR_CLONE3, 0, 1));
    add(program, FAIL(ENOSYS));
    for (size_t i = 0; i < LENGTH(common_calls); i++) {
        allow_call(program, common_calls[i]);
    }
    for (size_t i = 0; i < (is_soft ? LENGTH(soft_calls) : LENGTH(cuda_calls)); i++) {
        allow_call(program, is_soft ? soft_calls[i] : cuda_calls[i]);
    }
    allow_fcntl(program, is_soft);
    allow_listed(program, SYS_prctl, 0, prctl_options, LENGTH(prctl_options), EPERM);
    allow_listed(program, SYS_tgkill, 0, &self, 1, EPERM); /* abort(), and libc among its threads */
    allow_listed(program, SYS_socket, 0, &unix_only, is_soft ? 0 : 1, EPERM);
    allow_ioctl(program, is_soft);
    allow_clone(program, is_soft);
    allow_reading_limits(program);
    add(program, JUMP(BPF_JMP | BPF_JGE | BPF_K, NR_KNOWN, 0, 1));
    add(program, FAIL(ENOSYS));
    add(program, FAIL(EPERM));
}

bool fgw_walls_filter(bool is_soft)
{
    struct program program = {.nr = 0};
    make(&program, is_soft);
    struct sock_fprog filter = {.len = program.nr, .filter = program.code};
    const long others = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter);
    if (others > 0) {
        errno = EBUSY; /* a thread has a filter of its own */
    }
    return others == 0;
}
