/*
 * A guest program that uses the device fairgv-memory through the kernel module, as any user of its group.
 *
 * memory_module STEP...     does the steps in their order and prints a line for each; a number behind a colon is errno.
 *   info                    how much is there
 *   grow BYTES              asks for so much in all
 *   interrupt BYTES         the same, and a signal comes meanwhile
 *   fill, check             writes its own number into each word of what is there; reads them again
 *   hold                    touches what is there, until that is not allowed any more
 *   attack                  asks for everything that it must not get, and much at once
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../vm/expect.h"
#include "ivshmem/device.h"

#define DEVICE     "/dev/fairgv-memory0"
#define PAGE       4096u
#define NR_THREADS 8u
#define NR_ROUNDS  50u

static const int BOTH = PROT_READ | PROT_WRITE;
static const struct timespec NAP = {.tv_nsec = 1000000};
static sigjmp_buf gone;

static int grow(int device, uint64_t bytes)
{
    return ioctl(device, FGV_MEMORY_GROW, &bytes);
}

static struct fgv_memory_info info_of(int device)
{
    struct fgv_memory_info info = {0};
    if (ioctl(device, FGV_MEMORY_INFO, &info) != 0 || info.abi != FGV_MEMORY_ABI || info.reserved != 0) {
        printf("no info: %d\n", errno);
        exit(1);
    }
    return info;
}

static void print_result(int device, const char *step, int result)
{
    int error = result == 0 ? 0 : errno;
    struct fgv_memory_info info = {0};
    ioctl(device, FGV_MEMORY_INFO, &info);
    printf("%s: %d mapped %" PRIu64 "\n", step, error, (uint64_t)info.mapped_bytes);
}

static void *map_all(int device, uint64_t *bytes)
{
    *bytes = info_of(device).mapped_bytes;
    void *memory = mmap(NULL, *bytes, BOTH, MAP_SHARED, device, 0);
    if (memory == MAP_FAILED) {
        printf("not mapped: %d\n", errno);
        exit(1);
    }
    return memory;
}

static void ignore(int number)
{
    (void)number;
}

static void grow_interrupted(int device, uint64_t bytes)
{
    const struct sigaction action = {.sa_handler = ignore}; /* without SA_RESTART */
    const struct itimerval often = {.it_interval.tv_usec = 20000, .it_value.tv_usec = 20000};
    const struct itimerval never = {0};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    int result = grow(device, bytes);
    int error = errno;
    setitimer(ITIMER_REAL, &never, NULL);
    errno = error;
    print_result(device, "interrupt", result);
}

static void fill(int device)
{
    uint64_t bytes;
    volatile uint32_t *words = map_all(device, &bytes);
    for (uint64_t i = 0; i < bytes / 4; i++) {
        words[i] = (uint32_t)i;
    }
    printf("%" PRIu64 " words\n", bytes / 4);
    munmap((void *)words, bytes);
}

static void check(int device)
{
    uint64_t bytes, nr = 0;
    volatile uint32_t *words = map_all(device, &bytes);
    for (uint64_t i = 0; i < bytes / 4; i++) {
        nr += words[i] != (uint32_t)i;
    }
    printf("%" PRIu64 " words, %" PRIu64 " wrong\n", bytes / 4, nr);
    munmap((void *)words, bytes);
}

static void on_bus_error(int number)
{
    (void)number;
    siglongjmp(gone, 1);
}

static void hold(int device)
{
    const struct sigaction action = {.sa_handler = on_bus_error};
    uint64_t bytes;
    volatile uint8_t *memory = map_all(device, &bytes);
    struct fgv_memory_info info = {0};
    sigaction(SIGBUS, &action, NULL);
    if (sigsetjmp(gone, 1) == 0) {
        memory[0] = 1;
        memory[bytes - 1] = 1;
        printf("holding\n");
        fflush(stdout);
        for (;; nanosleep(&NAP, NULL)) {
            memory[bytes - 1]++;
        }
    }
    int error = ioctl(device, FGV_MEMORY_INFO, &info) == 0 ? 0 : errno;
    bool is_mapped = mmap(NULL, PAGE, BOTH, MAP_SHARED, device, 0) != MAP_FAILED;
    printf("gone, info: %d mapped %" PRIu64 " %s\n", error, (uint64_t)info.mapped_bytes, is_mapped ? "yes" : "no");
}

static void attack_mappings(int device, uint64_t bytes, uint64_t window_bytes)
{
    expect(is_refused(device, bytes + PAGE, BOTH, MAP_SHARED, 0), "mapped more than is there");
    expect(is_refused(device, PAGE, PROT_READ, MAP_SHARED, bytes), "mapped behind what is there");
    expect(is_refused(device, 2 * PAGE, BOTH, MAP_SHARED, bytes - PAGE), "mapped over the end");
    expect(is_refused(device, PAGE, BOTH, MAP_SHARED, window_bytes - PAGE), "mapped the window's end");
    expect(is_refused(device, PAGE, BOTH, MAP_SHARED, window_bytes), "mapped behind the window");
    expect(is_refused(device, window_bytes, BOTH, MAP_SHARED, 0), "mapped the window");
    expect(is_refused(device, PAGE, PROT_READ, MAP_SHARED, FGV_DEVICE_RUNG_OFFSET), "mapped counts");
    expect(is_refused(device, PAGE, BOTH, MAP_SHARED, UINT64_MAX - PAGE + 1), "mapped at a wrapped offset");
    expect(is_refused(device, 2 * PAGE, BOTH, MAP_SHARED, UINT64_MAX - PAGE + 1), "mapped over a wrapped offset");
    expect(is_refused(device, PAGE, BOTH, MAP_PRIVATE, 0), "mapped privately");
    void *last = mmap(NULL, PAGE, BOTH, MAP_SHARED, device, (off_t)(bytes - PAGE));
    expect(last != MAP_FAILED, "the last page is refused");
    expect(mremap(last, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED, "a mapping was made longer");
    int readable = open(DEVICE, O_RDONLY);
    expect(is_refused(readable, PAGE, BOTH, MAP_SHARED, 0), "wrote through a file open for reading");
    close(readable);
}

static void attack_calls(int device, uint64_t bytes, uint64_t window_bytes)
{
    const uint64_t sizes[] = {1, PAGE + 1, window_bytes + PAGE, UINT64_C(1) << 63, UINT64_MAX, UINT64_MAX - PAGE + 1};
    struct fgv_device_wait wait = {0};
    uint8_t byte = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        expect(fails(grow(device, sizes[i]), EINVAL), "grew to a size that there is not");
    }
    expect(grow(device, 0) == 0 && grow(device, bytes) == 0, "what is there already is refused");
    expect(fails(ioctl(device, FGV_MEMORY_GROW, (void *)8), EFAULT), "grew by a bad address");
    expect(fails(ioctl(device, FGV_MEMORY_INFO, (void *)8), EFAULT), "was told to a bad address");
    expect(fails(ioctl(device, FGV_DEVICE_WAIT, &wait), ENOTTY), "waited as at a region");
    expect(fails(ioctl(device, FGV_DEVICE_RING, 0), ENOTTY), "rang as at a region");
    expect(fails(ioctl(device, _IO(0xf6, 99), 0), ENOTTY), "a call that does not exist");
    expect(read(device, &byte, 1) < 0 && write(device, &byte, 1) < 0, "read or written as a file");
    expect(info_of(device).mapped_bytes == bytes && info_of(device).window_bytes == window_bytes, "it is another size");
}

static void *crowd_one(void *argument)
{
    const int device = *(const int *)argument;
    for (unsigned i = 0; i < NR_ROUNDS; i++) {
        uint64_t bytes = info_of(device).mapped_bytes;
        uint8_t *memory = mmap(NULL, bytes, BOTH, MAP_SHARED, device, 0);
        if (memory == MAP_FAILED || grow(device, bytes) != 0) {
            return argument;
        }
        for (uint64_t at = 0; at < bytes; at += bytes / 16) {
            (void)*(volatile uint8_t *)(memory + at);
        }
        munmap(memory, bytes / 2 / PAGE * PAGE); /* in two parts */
        munmap(memory + bytes / 2 / PAGE * PAGE, bytes - bytes / 2 / PAGE * PAGE);
    }
    return NULL;
}

static void crowd(int device)
{
    pthread_t threads[NR_THREADS];
    uint64_t bytes;
    volatile uint8_t *memory = map_all(device, &bytes);
    memory[bytes - 1] = 0x5a;
    pid_t child = fork();
    if (child == 0) {
        _exit(memory[bytes - 1] == 0x5a ? 0 : 1);
    }
    for (unsigned i = 0; i < NR_THREADS; i++) {
        pthread_create(&threads[i], NULL, crowd_one, &device);
    }
    for (unsigned i = 0; i < NR_THREADS; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        expect(!failed, "a thread of a crowd");
    }
    int status = -1;
    waitpid(child, &status, 0);
    expect(status == 0, "a child sees another memory");
    munmap((void *)memory, bytes);
}

static void attack(int device)
{
    const struct fgv_memory_info info = info_of(device);
    attack_mappings(device, info.mapped_bytes, info.window_bytes);
    attack_calls(device, info.mapped_bytes, info.window_bytes);
    crowd(device);
    puts(nr_wrong == 0 ? "PASS" : "FAIL");
}

static uint64_t number(const char *text)
{
    if (!text) {
        exit(2);
    }
    return strtoull(text, NULL, 0);
}

/* Returns how many arguments the step has. */
static int take_step(int device, char **step)
{
    if (strcmp(step[0], "grow") == 0) {
        return print_result(device, "grow", grow(device, number(step[1]))), 1;
    }
    if (strcmp(step[0], "interrupt") == 0) {
        return grow_interrupted(device, number(step[1])), 1;
    }
    if (strcmp(step[0], "info") == 0) {
        return printf("window %" PRIu64 " mapped %" PRIu64 "\n", (uint64_t)info_of(device).window_bytes,
                      (uint64_t)info_of(device).mapped_bytes),
               0;
    }
    if (strcmp(step[0], "fill") == 0) {
        return fill(device), 0;
    }
    if (strcmp(step[0], "check") == 0) {
        return check(device), 0;
    }
    if (strcmp(step[0], "hold") == 0) {
        return hold(device), 0;
    }
    if (strcmp(step[0], "attack") == 0) {
        return attack(device), 0;
    }
    exit(2);
}

int main(int nr_arguments, char **arguments)
{
    int device = open(DEVICE, O_RDWR);
    if (device < 0) {
        printf("not open: %d\n", errno);
        return 3;
    }
    for (int i = 1; i < nr_arguments; i++) {
        i += take_step(device, arguments + i);
        fflush(stdout);
    }
    return nr_wrong != 0;
}
