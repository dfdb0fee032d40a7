/* Asking the virtual machine for memory: see growth.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "growth.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "ivshmem/region.h"
#include "pci.h"

#define MEMORY_DEVICE   "0x10f0"
#define REGISTERS_BYTES 4096u
#define MAGIC           UINT64_C(0x000000014d564746) /* and version 1 */
#define NAP_NS          50000
#define NAP_MOST_NS     2000000
#define ANSWER_MOST_NS  UINT64_C(60000000000) /* the host clears the memory first, which takes a second for some GB */

enum { AT_MAGIC = 0x00, AT_WINDOW = 0x08, AT_MAPPED = 0x10, AT_WANTED = 0x18, AT_STATE = 0x20, AT_CHANGES = 0x28 };
enum { STATE_ASKING = 1 };

static uint64_t load(const struct fgv_growth *growth, unsigned offset)
{
    return *(const volatile uint64_t *)(const volatile void *)(growth->registers + offset);
}

static volatile uint8_t *map_registers(int file)
{
    void *registers = mmap(NULL, REGISTERS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return registers != MAP_FAILED ? registers : NULL;
}

static bool has_magic(int file)
{
    const struct fgv_growth growth = {.registers = map_registers(file)};
    if (growth.registers == NULL)
        return false;
    bool is_ours = load(&growth, AT_MAGIC) == MAGIC;
    munmap((void *)(uintptr_t)growth.registers, REGISTERS_BYTES);
    return is_ours;
}

/* Opens the registers' file, and fills `path` with its name. */
static int open_registers(char *path, size_t path_bytes)
{
    const char *folder = getenv("FAIRGV_MEMORY");
    const char *region = getenv("FAIRGV_REGION");
    if (folder == NULL || folder[0] == '\0')
        return region == NULL || region[0] == '\0'
                   ? fgv_pci_open(MEMORY_DEVICE, "resource0", has_magic, path, path_bytes, NULL)
                   : -1;
    if (snprintf(path, path_bytes, "%s/resource0", folder) >= (int)path_bytes)
        return -1;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0 && !has_magic(file)) {
        close(file);
        file = -1;
    }
    return file;
}

bool fgv_growth_open(struct fgv_growth *growth)
{
    char path[320];
    *growth = (struct fgv_growth){.window = -1};
    int file = open_registers(path, sizeof(path));
    if (file < 0)
        return false;
    growth->registers = map_registers(file);
    close(file);
    path[strlen(path) - 1] = '2'; /* of "resource0" */
    if (growth->registers != NULL) {
        growth->window = open(path, O_RDWR | O_CLOEXEC);
        growth->window_bytes = load(growth, AT_WINDOW);
    }
    if (growth->window >= 0 && fgv_window_is_sound(growth->window_bytes, 0))
        return true;
    fgv_growth_close(growth);
    return false;
}

void fgv_growth_close(struct fgv_growth *growth)
{
    if (growth->registers != NULL)
        munmap((void *)(uintptr_t)growth->registers, REGISTERS_BYTES);
    if (growth->registers != NULL && growth->window >= 0)
        close(growth->window);
    *growth = (struct fgv_growth){.window = -1};
}

uint64_t fgv_growth_mapped(const struct fgv_growth *growth)
{
    uint64_t bytes = load(growth, AT_MAPPED);
    return fgv_window_is_sound(growth->window_bytes, bytes) ? bytes : 0;
}

/* Naps until nothing is asked any more and, if so wanted, a request has ended since `changes` was read. */
static bool await_idle(const struct fgv_growth *growth, bool is_change_due, uint32_t changes)
{
    struct timespec nap = {.tv_nsec = NAP_NS};
    for (uint64_t passed_ns = 0; passed_ns < ANSWER_MOST_NS; passed_ns += (uint64_t)nap.tv_nsec) {
        bool is_changed = (uint32_t)load(growth, AT_CHANGES) != changes;
        if ((is_changed || !is_change_due) && (uint32_t)load(growth, AT_STATE) != STATE_ASKING)
            return true;
        nanosleep(&nap, NULL);
        nap.tv_nsec = nap.tv_nsec * 2 < NAP_MOST_NS ? nap.tv_nsec * 2 : NAP_MOST_NS;
    }
    return false;
}

bool fgv_growth_ask(const struct fgv_growth *growth, uint64_t bytes)
{
    if (!await_idle(growth, false, 0)) /* who asked before may have died */
        return false;
    uint32_t changes = (uint32_t)load(growth, AT_CHANGES);
    *(volatile uint64_t *)(volatile void *)(growth->registers + AT_WANTED) = bytes;
    return await_idle(growth, true, changes) && load(growth, AT_STATE) >> 32 == 0;
}

bool fgv_growth_map(const struct fgv_growth *growth, uint8_t *window, uint64_t from, uint64_t to)
{
    void *wanted = window + from;
    return mmap(wanted, to - from, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, growth->window, (off_t)from) ==
           wanted;
}
