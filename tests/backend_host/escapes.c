/*
 * A device library that its guest has taken over: it passes calls on to softgpu, which it is linked against, but a name
 * of a function that begins with "escape " is an attack, run in the worker, on the thread that serves the guest. What
 * came of it is the result: PASSED and a number, or FAILED and an errno. Built by walled.py.
 *
 * "escape call NUMBER ARGUMENT..." is any system call. An argument is a number, "text, or #bytes in hexadecimal, of
 * which the call gets the address. What no single call does has a name of its own below.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_api/types.h"

#define PREFIX     "escape "
#define PASSED     1000000
#define FAILED     2000000
#define MOST       (FAILED - PASSED - 1) /* of a number that comes back */
#define MOST_WORDS 8
#define BYTES      512
#define MIB        (1u << 20)

static char *words[MOST_WORDS];
static int nr_words;

static long number(int word)
{
    return word < nr_words ? strtol(words[word], NULL, 0) : 0;
}

static const char *text(int word)
{
    return word < nr_words ? words[word] : "";
}

static long argument(int word)
{
    static unsigned char buffers[MOST_WORDS][BYTES];
    unsigned char *buffer = buffers[word % MOST_WORDS];
    const char *said = text(word);
    if (*said == '"') {
        return (long)(said + 1);
    }
    if (*said != '#') {
        return number(word);
    }
    memset(buffer, 0, BYTES);
    for (size_t i = 0; i < BYTES && said[1 + 2 * i]; i++) {
        sscanf(said + 1 + 2 * i, "%2hhx", &buffer[i]);
    }
    return (long)buffer;
}

static long call(void)
{
    return syscall(number(1), argument(2), argument(3), argument(4), argument(5), argument(6), argument(7));
}

/* Another architecture's getpid. */
static long int80(void)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory");
    return result;
}

/* The first descriptor whose file has this in its name. */
static int descriptor(const char *wanted)
{
    char path[64], target[256];
    for (int fd = 0; fd < 1024; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        const ssize_t got = readlink(path, target, sizeof(target) - 1);
        if (got > 0 && (target[got] = '\0', strstr(target, wanted))) {
            return fd;
        }
    }
    errno = ENOENT;
    return -1;
}

/* On the daemon's socket. */
static long control(void)
{
    return fcntl(descriptor("socket:"), (int)number(1), argument(2));
}

static long request(void)
{
    return ioctl(descriptor("socket:"), (unsigned long)number(1), argument(2));
}

/* To pass for the worker of this slot. */
static long life(void)
{
    const int own = descriptor("fairgv-lives");
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", own);
    const int fresh = open(path, O_RDONLY);
    struct flock lock = {.l_type = (short)number(2), .l_whence = SEEK_SET, .l_start = number(1), .l_len = 1};
    return fcntl(fresh >= 0 ? fresh : own, F_OFD_SETLK, &lock);
}

/* A listener of the host with this abstract name. */
static long abstract(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "%s", text(1));
    const int own = socket(AF_UNIX, SOCK_STREAM, 0);
    return own < 0 ? -1 : connect(own, (void *)&name, (socklen_t)(sizeof(name.sun_family) + 1 + strlen(text(1))));
}

/* What is open, a line each, in a file of the cache. */
static long descriptors(void)
{
    char target[256];
    FILE *list = fopen("/cache/descriptors", "w");
    DIR *folder = opendir("/proc/self/fd");
    long nr = 0;
    if (!list || !folder) {
        return -1;
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        const ssize_t got = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        if (got > 0 && atoi(entry->d_name) != fileno(list) && atoi(entry->d_name) != dirfd(folder)) {
            target[got] = '\0';
            fprintf(list, "%s %s\n", entry->d_name, target);
            nr++;
        }
    }
    closedir(folder);
    fclose(list);
    return nr;
}

static long clone_with(void)
{
    const long child = syscall(SYS_clone, number(1) | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        _exit(0);
    }
    return child < 0 ? -1 : waitpid((pid_t)child, NULL, 0) - child;
}

/* A program of its own in this folder. */
static long execute(void)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/program", text(1));
    const int file = open(path, O_WRONLY | O_CREAT, 0700);
    if (file < 0) {
        return -1;
    }
    close(file);
    char *const arguments[] = {path, NULL};
    const pid_t child = fork();
    int status = 0;
    if (child == 0) {
        execve(path, arguments, arguments + 1);
        _exit(errno);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0) {
        return -1;
    }
    errno = WEXITSTATUS(status);
    return errno == 0 || errno == ENOEXEC ? 0 : -1;
}

/* How many of them there may be, up to so many. */
static long forks(void)
{
    static pid_t children[8192];
    long nr = 0;
    for (; nr < number(1) && nr < 8192 && (children[nr] = fork()) >= 0; nr++) {
        if (children[nr] == 0) {
            for (;;) {
                pause();
            }
        }
    }
    const int failed = errno;
    for (long i = 0; i < nr; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    errno = failed;
    return nr ? nr : -1;
}

static pthread_mutex_t are_over = PTHREAD_MUTEX_INITIALIZER;

static void *stand(void *nothing)
{
    pthread_mutex_lock(&are_over);
    pthread_mutex_unlock(&are_over);
    return nothing;
}

static long threads(void)
{
    static pthread_t started[8192];
    pthread_attr_t small;
    long nr = 0;
    int failed = 0;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_mutex_lock(&are_over);
    for (; nr < number(1) && nr < 8192 && !(failed = pthread_create(&started[nr], &small, stand, NULL)); nr++) {
    }
    pthread_mutex_unlock(&are_over);
    for (long i = 0; i < nr; i++) {
        pthread_join(started[i], NULL);
    }
    errno = failed;
    return nr ? nr : -1;
}

/* Writes so many MiB; how many there was room for. */
static long write_mib(int file, long most)
{
    static char block[MIB];
    long nr = 0;
    memset(block, 1, sizeof(block));
    while (nr < most && write(file, block, sizeof(block)) == (ssize_t)sizeof(block)) {
        nr++;
    }
    return nr;
}

/* One file of so many MiB at this path; how many there was room for. */
static long fill(void)
{
    const int file = open(text(1), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0) {
        return -1;
    }
    const long nr = write_mib(file, number(2));
    close(file);
    unlink(text(1));
    return nr;
}

/* The same; it stays. */
static long keep(void)
{
    const int file = open(text(1), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0) {
        return -1;
    }
    const long nr = write_mib(file, number(2));
    close(file);
    return nr;
}

/* The same of a file that no folder shows, and that stays open, or mapped alone. */
static long hold(void)
{
    const int file = open(text(1), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || unlink(text(1))) {
        return -1;
    }
    const long nr = write_mib(file, number(2));
    if (!strcmp(text(3), "mapped")) {
        if (mmap(NULL, MIB, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED) {
            return -1;
        }
        close(file);
    }
    return nr;
}

/* So many files in this folder. */
static long files(void)
{
    char path[256];
    long nr = 0;
    for (; nr < number(2); nr++) {
        snprintf(path, sizeof(path), "%s/bomb-%ld", text(1), nr);
        const int file = open(path, O_WRONLY | O_CREAT, 0600);
        if (file < 0) {
            break;
        }
        close(file);
    }
    for (long i = 0; i < nr; i++) {
        snprintf(path, sizeof(path), "%s/bomb-%ld", text(1), i);
        unlink(path);
    }
    return nr;
}

/* Descriptors, up to so many. */
static long duplicates(void)
{
    static int fds[65536];
    long nr = 0;
    while (nr < number(1) && nr < 65536 && (fds[nr] = dup(0)) >= 0) {
        nr++;
    }
    for (long i = 0; i < nr; i++) {
        close(fds[i]);
    }
    return nr;
}

/* Messages of 200 descriptors each to the daemon, which has asked for none, up to so many. */
static long flood(void)
{
    int fds[200] = {0};
    char byte = '!';
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(fds))];
    } extra = {.header = {.cmsg_len = CMSG_LEN(sizeof(fds)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &extra, .msg_controllen = sizeof(extra.bytes)};
    const int daemon = descriptor("socket:");
    long nr = 0;
    memcpy(CMSG_DATA(&extra.header), fds, sizeof(fds));
    while (nr < number(1) && sendmsg(daemon, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
        nr++;
    }
    return nr ? nr : -1;
}

/* Memory that is used, in MiB. */
static long memory(void)
{
    const size_t bytes = (size_t)number(1) * MIB;
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        return -1;
    }
    memset(at, 1, bytes);
    munmap(at, bytes);
    return number(1);
}

/* Asynchronous requests that nobody else may have then. */
static long requests(void)
{
    unsigned long queue = 0;
    long nr = 0;
    while (nr < number(1) && syscall(SYS_io_setup, 64, &queue) == 0) {
        queue = 0;
        nr++;
    }
    return nr ? nr : -1;
}

static const struct attack {
    const char *name;
    long (*run)(void);
} attacks[] = {
    {"call", call},
    {"int80", int80},
    {"fcntl", control},
    {"ioctl", request},
    {"life", life},
    {"abstract", abstract},
    {"descriptors", descriptors},
    {"clone", clone_with},
    {"execute", execute},
    {"forks", forks},
    {"threads", threads},
    {"fill", fill},
    {"keep", keep},
    {"hold", hold},
    {"files", files},
    {"duplicates", duplicates},
    {"flood", flood},
    {"memory", memory},
    {"requests", requests},
};

static int attack(const char *said)
{
    char copy[4096], *rest = NULL;
    snprintf(copy, sizeof(copy), "%s", said);
    nr_words = 0;
    for (char *word = strtok_r(copy, " ", &rest); word && nr_words < MOST_WORDS; word = strtok_r(NULL, " ", &rest)) {
        words[nr_words++] = word;
    }
    for (size_t i = 0; i < sizeof(attacks) / sizeof(*attacks); i++) {
        if (!strcmp(text(0), attacks[i].name)) {
            errno = 0;
            const long result = attacks[i].run();
            return result < 0 ? FAILED + errno : PASSED + (int)(result < MOST ? result : MOST);
        }
    }
    return FAILED;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    if (!strncmp(name, PREFIX, strlen(PREFIX))) {
        return (CUresult)attack(name + strlen(PREFIX));
    }
    __typeof__(cuModuleGetFunction) *next = dlsym(RTLD_NEXT, "cuModuleGetFunction");
    return next(hfunc, hmod, name);
}

/* Modules are a name alone, as a worker behind the walls for a GPU starts no compiler. */
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
                            void **optionValues)
{
    (void)image, (void)numOptions, (void)options, (void)optionValues;
    *module = (CUmodule)(void *)attacks;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule hmod)
{
    (void)hmod;
    return CUDA_SUCCESS;
}
