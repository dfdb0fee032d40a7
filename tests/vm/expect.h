/* What guest programs that attack a device say of what they got away with. */
#ifndef TESTS_VM_EXPECT_H
#define TESTS_VM_EXPECT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

static unsigned nr_wrong;

static void expect(bool is_so, const char *what)
{
    if (is_so) {
        return;
    }
    nr_wrong++;
    printf("wrong: %s (errno %d)\n", what, errno);
}

static bool fails(long result, int error)
{
    return result == -1 && errno == error;
}

/* A mapping of the device, that is. */
static bool is_refused(int device, uint64_t bytes, int protection, int flags, uint64_t offset)
{
    void *mapped = mmap(NULL, bytes, protection, flags, device, (off_t)offset);
    if (mapped == MAP_FAILED) {
        return true;
    }
    munmap(mapped, bytes);
    return false;
}

#endif
