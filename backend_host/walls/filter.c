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
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <unistd.h>

#include "walls/enter.h"
#include "walls/filter_lists.h"

#define LENGTH(list) (sizeof(list) / sizeof(*(list)))

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

/* A call whose argument has none of these bits. */
static void allow_without(struct program *program, int number, uint32_t argument, uint32_t refused)
{
    const uint16_t start = begin_rules(program, number);
    add(program, ARGUMENT(argument));
    add(program, JUMP(BPF_JMP | BPF_JSET | BPF_K, refused, 1, 0));
    add(program, RETURN(SECCOMP_RET_ALLOW));
    end_rules(program, start, EPERM);
}

/* Threads, and where there are compilers, processes. */
static void allow_clone(struct program *program, bool is_soft)
{
    const uint16_t start = begin_rules(program, SYS_clone);
    add(program, ARGUMENT(0));
    add(program, JUMP(BPF_JMP | BPF_JSET | BPF_K, REFUSED_CLONE_FLAGS, 2, 0));
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
    const uint32_t self = (uint32_t)getpid(), unix_only = AF_UNIX, oneself = 0;
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
    allow_listed(program, SYS_setpriority, 1, &oneself, is_soft ? 1 : 0, EPERM); /* a compiler that optimises is nice */
    allow_ioctl(program, is_soft);
    /* Huge pages are set aside for all of the host, virtual machines say, and no cgroup of ours counts them. */
    allow_without(program, SYS_mmap, 3, MAP_HUGETLB);
    allow_without(program, SYS_memfd_create, 1, MFD_HUGETLB);
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
