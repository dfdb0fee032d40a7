/*
 * Asks the installed libcuda.so.1 what a program would find: prints the devices and ends with 0, or ends with 1 after
 * the library has said why not. `fairgv-guest check` runs it.
 *
 * It has no libc start files: those of a new glibc make a program that an older one refuses, and this one is to run
 * wherever the library does. So it starts by itself, and hands the loader's own end to exit().
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_api/types.h"

extern int __cxa_atexit(void (*function)(void *), void *argument, void *library);
CUresult cuInit(unsigned int flags);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetName(char *name, int bytes, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);

__asm__(".globl _start\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rdx, %rdi\n"
        "    and $-16, %rsp\n"
        "    call probe\n");

__attribute__((noreturn, used)) void probe(void (*loader_end)(void *))
{
    int nr_devices = 0;
    __cxa_atexit(loader_end, NULL, NULL); /* atexit() itself is in the start files */
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&nr_devices) != CUDA_SUCCESS || nr_devices == 0)
        exit(1);
    for (int i = 0; i < nr_devices; i++) {
        char name[256] = "";
        size_t bytes = 0;
        if (cuDeviceGetName(name, sizeof(name), i) != CUDA_SUCCESS || cuDeviceTotalMem_v2(&bytes, i) != CUDA_SUCCESS)
            exit(1);
        printf("%s, %llu MiB\n", name, (unsigned long long)(bytes >> 20));
    }
    exit(0);
}
