/*
 * Touches of managed memory: see trap.h.
 *
 * By userfaultfd the pages are readable and writable for the kernel, and what the program may do is a matter of which
 * are in its page tables (a touch of others is a minor fault, as the pages have contents) and which are protected there
 * against writing. Linux 5.19 has all of that for shared memory but the protection of pages as they are put in, which
 * 6.4 has.
 *
 * Wrong when: the program blocks SIGSEGV, or sets a handler of its own and touches managed memory before its next work
 * for the device, where the second way is taken.
 */
#include "managed/trap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"

/* Newer than the headers of the oldest system that this is built on. */
#define FEATURE_MINOR_SHMEM (UINT64_C(1) << 10)
#define FEATURE_WP_SHMEM    (UINT64_C(1) << 12)
#define REGISTER_MINOR      (UINT64_C(1) << 2)
#define CONTINUE_PROTECTED  (UINT64_C(1) << 1)
#define NEW_USERFAULTFD     _IO(0xAA, 0x00)
#define POPULATE_READ       22 /* of madvise, since Linux 5.14 */
#define POPULATE_WRITE      23
#define PAGE_BYTES          UINT64_C(4096)
/* How often more is brought than was touched: what others may have waited for in vain. */
#define MOST_AHEAD 4

static enum { UNKNOWN, FAULTS, SIGNAL } way;
static const struct fgv_trap_ops *ops;
static int faults = -1;
static int later[2]; /* a pipe of touches that may have to wait */
static bool tells_writes = true;
static struct sigaction before;

static void *address_of(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* ---- by userfaultfd ---- */

static int open_faults(void)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (fd < 0) {
        const int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        if (device >= 0) {
            fd = ioctl(device, NEW_USERFAULTFD, O_CLOEXEC);
            close(device);
        }
    }
    const uint64_t needed = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_THREAD_ID |
                            FEATURE_MINOR_SHMEM | FEATURE_WP_SHMEM;
    struct uffdio_api api = {.api = UFFD_API, .features = needed};
    if (fd >= 0 && (ioctl(fd, UFFDIO_API, &api) != 0 || (api.features & needed) != needed)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool is_set(uint64_t address, uint64_t bytes)
{
    struct uffdio_register wish = {.range = {address, bytes},
                                   .mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP | REGISTER_MINOR};
    return mprotect(address_of(address), bytes, PROT_READ | PROT_WRITE) == 0 &&
           ioctl(faults, UFFDIO_REGISTER, &wish) == 0;
}

/* Puts pages into the program's page tables. Some of them may be there. */
static bool put_in(uint64_t address, uint64_t bytes, uint64_t mode)
{
    while (bytes > 0) {
        struct {
            struct uffdio_range range;
            uint64_t mode;
            int64_t mapped;
        } wish = {.range = {address, bytes}, .mode = mode};
        if (ioctl(faults, UFFDIO_CONTINUE, &wish) == 0) {
            return true;
        }
        uint64_t done = wish.mapped > 0 ? (uint64_t)wish.mapped : 0;
        if (errno == EEXIST && done == 0) {
            done = PAGE_BYTES;
        } else if (errno != EAGAIN && errno != EEXIST) {
            return false;
        }
        address += done;
        bytes -= done;
    }
    return true;
}

static bool protect_pages(uint64_t address, uint64_t bytes)
{
    struct uffdio_writeprotect wish = {.range = {address, bytes}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
    int result;
    do {
        result = ioctl(faults, UFFDIO_WRITEPROTECT, &wish);
    } while (result != 0 && errno == EAGAIN);
    return result == 0;
}

/* Whether pages can be put in protected, tried on one of ours. */
static bool can_protect(void)
{
    bool can = false;
    const int fd = memfd_create("fairgv-probe", MFD_CLOEXEC);
    void *at = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)PAGE_BYTES) == 0 && pwrite(fd, "", 1, 0) == 1) {
        at = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (at != MAP_FAILED) {
        const uint64_t address = (uint64_t)(uintptr_t)at;
        can = is_set(address, PAGE_BYTES) && put_in(address, PAGE_BYTES, CONTINUE_PROTECTED);
        munmap(at, PAGE_BYTES);
    }
    if (fd >= 0) {
        close(fd);
    }
    return can;
}

struct touch {
    uint64_t address;
    uint32_t thread;
    bool is_write;
};

static void serve(const struct touch *touch)
{
    ops->touched(touch->address, touch->is_write, touch->thread);
    /* What was done meanwhile for another thread has woken that one alone. */
    struct uffdio_range range = {touch->address, PAGE_BYTES};
    ioctl(faults, UFFDIO_WAKE, &range);
}

static bool is_touched(void)
{
    struct pollfd more = {.fd = later[0], .events = POLLIN};
    return poll(&more, 1, 0) > 0;
}

static void *touches_serve(void *unused)
{
    (void)unused;
    struct touch touch;
    for (;;) {
        const ssize_t nr = read(later[0], &touch, sizeof(touch));
        if (nr == (ssize_t)sizeof(touch)) {
            serve(&touch);
            for (int i = 0; i < MOST_AHEAD && !is_touched() && ops->ahead(touch.address); i++) {
            }
        } else if (nr >= 0 || errno != EINTR) {
            return NULL;
        }
    }
}

static void *faults_read(void *unused)
{
    (void)unused;
    struct uffd_msg message;
    for (;;) {
        const ssize_t nr = read(faults, &message, sizeof(message));
        if (nr < 0 && errno != EINTR && errno != EAGAIN) {
            return NULL;
        }
        if (nr != (ssize_t)sizeof(message) || message.event != UFFD_EVENT_PAGEFAULT) {
            continue;
        }
        const uint64_t flags = message.arg.pagefault.flags;
        const struct touch touch = {.address = message.arg.pagefault.address & ~(PAGE_BYTES - 1),
                                    .thread = message.arg.pagefault.feat.ptid,
                                    .is_write = (flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP)) != 0};
        if (ops->is_urgent(touch.thread) || write(later[1], &touch, sizeof(touch)) != (ssize_t)sizeof(touch)) {
            serve(&touch);
        }
    }
}

static bool faults_start(void)
{
    return pipe2(later, O_CLOEXEC) == 0 && fgv_thread_make(touches_serve, NULL) && fgv_thread_make(faults_read, NULL);
}

/* ---- by protection ---- */

static void hand_on(int number, siginfo_t *info, void *state)
{
    if ((before.sa_flags & SA_SIGINFO) != 0) {
        before.sa_sigaction(number, info, state);
    } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
        sigaction(number, &before, NULL); /* the instruction is tried again, and that is the end */
    } else {
        before.sa_handler(number);
    }
}

static void on_signal(int number, siginfo_t *info, void *state)
{
    const int kept = errno;
    const ucontext_t *registers = state;
    const bool is_write = ((uint64_t)registers->uc_mcontext.gregs[REG_ERR] & 2) != 0;
    const bool is_ours =
        info->si_code == SEGV_ACCERR && ops->touched((uint64_t)(uintptr_t)info->si_addr, is_write, fgv_thread_id());
    errno = kept;
    if (!is_ours) {
        hand_on(number, info, state);
    }
}

static void handler_set(void)
{
    struct sigaction now;
    if (sigaction(SIGSEGV, NULL, &now) != 0 || ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_signal)) {
        return;
    }
    before = now;
    struct sigaction ours = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
    sigaction(SIGSEGV, &ours, NULL);
}

void fgv_trap_renew(void)
{
    if (way == SIGNAL) {
        handler_set();
    }
}

bool fgv_trap_hold(uint64_t address, uint64_t bytes)
{
    handler_set();
    return mprotect(address_of(address), bytes, PROT_NONE) == 0;
}

/* ---- either ---- */

void fgv_trap_open(const struct fgv_trap_ops *what)
{
    const char *asked = getenv("FAIRGV_TRAP");
    if (way != UNKNOWN) {
        return;
    }
    ops = what;
    faults = asked && strcmp(asked, "signal") == 0 ? -1 : open_faults();
    if (faults >= 0 && faults_start()) {
        tells_writes = can_protect();
        way = FAULTS;
        return;
    }
    if (faults >= 0) {
        close(faults);
    }
    if (!asked) {
        fgv_log_cause(FGV_CAUSE_MANAGED_TRAP,
                      "system calls fail with EFAULT for managed memory that the device has, as this user may not open "
                      "/dev/userfaultfd; FAIRGV_MANAGED=host keeps that memory where they reach it");
    }
    way = SIGNAL;
    fgv_trap_renew();
}

bool fgv_trap_tells_writes(void)
{
    return tells_writes;
}

bool fgv_trap_set(uint64_t address, uint64_t bytes)
{
    return way == SIGNAL || is_set(address, bytes);
}

bool fgv_trap_needs_contents(void)
{
    return way == FAULTS;
}

/* By protection the pages come by faults, unless they are asked for. */
static bool allow(uint64_t address, uint64_t bytes, bool is_writable)
{
    if (mprotect(address_of(address), bytes, is_writable ? PROT_READ | PROT_WRITE : PROT_READ) != 0) {
        return false;
    }
    madvise(address_of(address), bytes, is_writable ? POPULATE_WRITE : POPULATE_READ);
    return true;
}

bool fgv_trap_give(uint64_t address, uint64_t bytes, bool is_writable)
{
    return way == FAULTS ? put_in(address, bytes, is_writable ? 0 : CONTINUE_PROTECTED)
                         : allow(address, bytes, is_writable);
}

/* Protection that is lifted leaves a fault for each page; pages that are put in anew are writable. */
bool fgv_trap_make_writable(uint64_t address, uint64_t bytes)
{
    return way == FAULTS ? fgv_trap_take(address, bytes) && put_in(address, bytes, 0) : allow(address, bytes, true);
}

bool fgv_trap_make_readable(uint64_t address, uint64_t bytes)
{
    return way == FAULTS ? protect_pages(address, bytes) : mprotect(address_of(address), bytes, PROT_READ) == 0;
}

bool fgv_trap_take(uint64_t address, uint64_t bytes)
{
    return way == FAULTS ? madvise(address_of(address), bytes, MADV_DONTNEED) == 0
                         : mprotect(address_of(address), bytes, PROT_NONE) == 0;
}
