/*
 *   probe          asks the installed libcuda.so.1 what a program would find: prints the devices and ends with 0, or
 *                  ends with 1 after the library has said why not
 *   probe REGION   whether a file is a region of FairGV's: ends with 0, with 1 if it is not, with 2 if nobody can tell
 *
 * `fairgv-guest check` runs it.
 *
 * It has no libc start files: those of a new glibc make a program that an older one refuses, and this one is to run
 * wherever the library does. So it starts by itself, and hands the loader's own end to exit().
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cuda_api/types.h"
#include "ivshmem/region.h"

extern int __cxa_atexit(void (*function)(void *), void *argument, void *library);
CUresult cuInit(unsigned int flags);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetName(char *name, int bytes, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);

__asm__(".globl _start\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rdx, %rdi\n"
        "    mov %rsp, %rsi\n"
        "    and $-16, %rsp\n"
        "    call probe\n");

static int region_status(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct fgv_region_header *header =
        file < 0 ? MAP_FAILED : mmap(NULL, FGV_PAGE_BYTES, PROT_READ, MAP_SHARED, file, 0);
    if (header == MAP_FAILED) {
        return 2;
    }
    return atomic_load_explicit(&header->magic, memory_order_relaxed) == FGV_REGION_MAGIC ? 0 : 1;
}

/* `stack` begins with the number of arguments, and their addresses follow. */
__attribute__((noreturn, used)) void probe(void (*loader_end)(void *), void **stack)
{
    int nr_devices = 0;
    __cxa_atexit(loader_end, NULL, NULL); /* atexit() itself is in the start files */
    if ((uintptr_t)stack[0] > 1) {
        exit(region_status(stack[2]));
    }
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&nr_devices) != CUDA_SUCCESS || nr_devices == 0) {
        exit(1);
    }
    for (int i = 0; i < nr_devices; i++) {
        char name[256] = "";
        size_t bytes = 0;
        if (cuDeviceGetName(name, sizeof(name), i) != CUDA_SUCCESS || cuDeviceTotalMem_v2(&bytes, i) != CUDA_SUCCESS) {
            exit(1);
        }
        printf("%s, %llu MiB\n", name, (unsigned long long)(bytes >> 20));
    }
    exit(0);
}
