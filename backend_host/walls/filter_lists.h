/*
 * What filter.c lets through: system calls, and of some of them values of an argument. Included there alone.
 *
 * Wrong when: a device library needs a call that is not here. It gets an error, and strace shows which.
 */
#ifndef BACKEND_HOST_WALLS_FILTER_LISTS_H
#define BACKEND_HOST_WALLS_FILTER_LISTS_H

#include <fcntl.h>
#include <linux/memfd.h>
#include <sched.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

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
    SYS_alarm, /* a device library that does not let go (loop/worker.c) */
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
    /* bells: a write that never blocks (ivshmem/src/host_bell.c). Not io_setup: all processes of the host share what
     * there is, and one worker could take it */
    SYS_io_submit,
    SYS_io_getevents,
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

/* No namespaces, and no children of somebody else's. */
#define REFUSED_CLONE_FLAGS                                                                                            \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET |       \
     CLONE_PARENT)

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

#endif
