/* A guest program that asks the kernel module for everything it must not give. Prints what it got away with, or PASS.
 *
 * device_attack DEVICE */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"
#include "ivshmem/device.h"

#define PAGE 4096u

static long wait_for(int device, uint32_t vector, uint32_t seen, uint64_t timeout_ns)
{
    struct fgv_device_wait wait = {.vector = vector, .seen = seen, .timeout_ns = timeout_ns};
    return ioctl(device, FGV_DEVICE_WAIT, &wait);
}

static void attack_mappings(int device, uint64_t bytes)
{
    const int both = PROT_READ | PROT_WRITE;
    expect(is_refused(device, bytes + PAGE, both, MAP_SHARED, 0), "mapped more than the region");
    expect(is_refused(device, PAGE, both, MAP_SHARED, bytes), "mapped behind the region");
    expect(is_refused(device, 2 * PAGE, both, MAP_SHARED, bytes - PAGE), "mapped over the end");
    expect(is_refused(device, PAGE, both, MAP_SHARED, UINT64_MAX - PAGE + 1), "mapped at a wrapped offset");
    expect(is_refused(device, PAGE, both, MAP_PRIVATE, 0), "mapped privately");
    expect(is_refused(device, PAGE, both, MAP_SHARED, FGV_DEVICE_RUNG_OFFSET), "mapped the counts to write");
    expect(is_refused(device, 2 * PAGE, PROT_READ, MAP_SHARED, FGV_DEVICE_RUNG_OFFSET), "mapped behind the counts");
    expect(is_refused(device, PAGE, PROT_READ, MAP_SHARED, FGV_DEVICE_RUNG_OFFSET + PAGE), "mapped beside the counts");
    void *counts = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, device, (off_t)FGV_DEVICE_RUNG_OFFSET);
    expect(counts != MAP_FAILED, "counts not mapped");
    expect(fails(mprotect(counts, PAGE, both), EACCES), "made the counts writable");
    expect(!is_refused(device, PAGE, both, MAP_SHARED, bytes - PAGE), "the last page is refused");
}

static void attack_calls(int device, uint32_t nr_vectors)
{
    expect(fails(wait_for(device, nr_vectors, 0, 0), EINVAL), "waited for a vector that is not there");
    expect(fails(wait_for(device, UINT32_MAX, 0, 0), EINVAL), "waited for vector 2^32-1");
    expect(fails(ioctl(device, FGV_DEVICE_WAIT, (void *)8), EFAULT), "waited with a bad address");
    expect(fails(ioctl(device, FGV_DEVICE_INFO, (void *)8), EFAULT), "was told to a bad address");
    expect(fails(ioctl(device, FGV_DEVICE_RING, 0x10000ul), EINVAL), "rang peer 65536");
    expect(fails(ioctl(device, FGV_DEVICE_RING, ~0ul), EINVAL), "rang peer 2^64-1");
    expect(ioctl(device, FGV_DEVICE_RING, 0xfffful) == 0, "a peer that is not there makes ringing fail");
    expect(fails(ioctl(device, _IO(0xf6, 99), 0), ENOTTY), "a call that does not exist");
    expect(fails(wait_for(device, nr_vectors - 1, 0, 1000000), ETIME), "a wait that ends by its limit");
    expect(wait_for(device, nr_vectors - 1, 77, UINT64_MAX) == 0, "another count ends the wait at once");
}

static void *touch(void *region)
{
    for (unsigned i = 0; i < 4096; i++) {
        *((volatile uint8_t *)region + (uint64_t)i * PAGE);
    }
    return NULL;
}

/* Many threads fault the same pages in, and a child inherits them. */
static void crowd(int device, uint64_t bytes)
{
    pthread_t threads[8];
    volatile uint8_t *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device, 0);
    expect(region != MAP_FAILED, "region not mapped");
    for (unsigned i = 0; i < 8; i++) {
        pthread_create(&threads[i], NULL, touch, (void *)region);
    }
    for (unsigned i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
    }
    region[bytes - 1] = 0x5a;
    pid_t child = fork();
    if (child == 0) {
        _exit(region[bytes - 1] == 0x5a ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    expect(status == 0, "a child sees another region");
    region[bytes - 1] = 0;
    munmap((void *)region, bytes / 2); /* in two parts */
    munmap((uint8_t *)region + bytes / 2, bytes / 2);
}

int main(int nr_arguments, char **arguments)
{
    struct fgv_device_info info;
    int device = nr_arguments == 2 ? open(arguments[1], O_RDWR) : -1;
    if (device < 0 || ioctl(device, FGV_DEVICE_INFO, &info) != 0) {
        perror("the device");
        return 2;
    }
    attack_mappings(device, info.region_bytes);
    attack_calls(device, info.nr_vectors);
    crowd(device, info.region_bytes);
    int readable = open(arguments[1], O_RDONLY);
    expect(is_refused(readable, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0), "wrote through a file open for reading");
    puts(nr_wrong == 0 ? "PASS" : "FAIL");
    return nr_wrong != 0;
}
