/* Asking the virtual machine for memory: see growth.h. */
#include "region/growth.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/log.h"
#include "base/node.h"
#include "base/pci.h"
#include "ivshmem/device.h"
#include "ivshmem/region.h"

#define MODULE_DEVICES  "/dev/fairgv-memory"
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
    if (!growth.registers) {
        return false;
    }
    bool is_ours = load(&growth, AT_MAGIC) == MAGIC;
    munmap((void *)(uintptr_t)growth.registers, REGISTERS_BYTES);
    return is_ours;
}

static bool module_ask(int file, struct fgv_memory_info *info)
{
    return ioctl(file, FGV_MEMORY_INFO, info) == 0 && info->abi == FGV_MEMORY_ABI;
}

static bool is_module_file(int file)
{
    struct fgv_memory_info info;
    return module_ask(file, &info);
}

static bool open_module(struct fgv_growth *growth)
{
    char path[320];
    bool is_denied = false;
    struct fgv_memory_info info;
    growth->window = fgv_node_open(MODULE_DEVICES, is_module_file, path, sizeof(path), &is_denied);
    if (is_denied) {
        growth->denial = FGV_GROWTH_NOT_IN_GROUP;
    }
    if (growth->window >= 0 && module_ask(growth->window, &info)) {
        growth->window_bytes = info.window_bytes;
    }
    return growth->window >= 0;
}

/* Opens the window beside the registers, whose file has this name and is closed. */
static bool open_registers(struct fgv_growth *growth, int file, char *path)
{
    if (file < 0) {
        return false;
    }
    growth->registers = map_registers(file);
    close(file);
    path[strlen(path) - 1] = '2'; /* of "resource0" */
    if (growth->registers) {
        growth->window = open(path, O_RDWR | O_CLOEXEC);
        growth->window_bytes = load(growth, AT_WINDOW);
    }
    return growth->window >= 0;
}

static bool open_folder(struct fgv_growth *growth, const char *folder)
{
    char path[320];
    if (snprintf(path, sizeof(path), "%s/resource0", folder) >= (int)sizeof(path)) {
        return false;
    }
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0 && !has_magic(file)) {
        close(file);
        file = -1;
    }
    return open_registers(growth, file, path);
}

static bool open_pci(struct fgv_growth *growth)
{
    char path[320];
    bool is_denied = false;
    int file = fgv_pci_open(MEMORY_DEVICE, "resource0", has_magic, path, sizeof(path), &is_denied);
    if (is_denied) {
        growth->denial = FGV_GROWTH_NO_MODULE;
    }
    return open_registers(growth, file, path);
}

static bool is_set(const char *value)
{
    return value && value[0] != '\0';
}

static bool open_device(struct fgv_growth *growth)
{
    const char *folder = fgv_environment("FAIRGV_MEMORY");
    if (is_set(folder)) {
        return open_folder(growth, folder);
    }
    if (is_set(fgv_environment("FAIRGV_REGION"))) {
        return false;
    }
    return open_module(growth) || (growth->denial == FGV_GROWTH_ALLOWED && open_pci(growth));
}

bool fgv_growth_open(struct fgv_growth *growth)
{
    *growth = (struct fgv_growth){.window = -1};
    if (open_device(growth) && fgv_window_is_sound(growth->window_bytes, 0)) {
        growth->denial = FGV_GROWTH_ALLOWED; /* that of another one does not matter */
        return true;
    }
    const enum fgv_growth_denial denial = growth->denial;
    fgv_growth_close(growth);
    growth->denial = denial;
    return false;
}

void fgv_growth_close(struct fgv_growth *growth)
{
    if (growth->registers) {
        munmap((void *)(uintptr_t)growth->registers, REGISTERS_BYTES);
    }
    if (growth->window >= 0) {
        close(growth->window);
    }
    *growth = (struct fgv_growth){.window = -1};
}

void fgv_growth_explain(const struct fgv_growth *growth)
{
    if (growth->denial == FGV_GROWTH_NOT_IN_GROUP) {
        fgv_log_cause(FGV_CAUSE_NO_WINDOW, "no more pinned memory than the region has: " MODULE_DEVICES
                                           "0 is not for this user; add the user to the group fairgv and log in again");
    } else if (growth->denial == FGV_GROWTH_NO_MODULE) {
        fgv_log_cause(FGV_CAUSE_NO_WINDOW,
                      "no more pinned memory than the region has: without FairGV's kernel module the device for it is "
                      "root's; fairgv-guest check says how the module stands");
    }
}

uint64_t fgv_growth_mapped(const struct fgv_growth *growth)
{
    struct fgv_memory_info info = {0};
    if (growth->registers) {
        info.mapped_bytes = load(growth, AT_MAPPED);
    } else if (!module_ask(growth->window, &info)) {
        return 0;
    }
    return fgv_window_is_sound(growth->window_bytes, info.mapped_bytes) ? info.mapped_bytes : 0;
}

/* Naps until nothing is asked any more and, if so wanted, a request has ended since `changes` was read. */
static bool await_idle(const struct fgv_growth *growth, bool is_change_due, uint32_t changes)
{
    struct timespec nap = {.tv_nsec = NAP_NS};
    for (uint64_t passed_ns = 0; passed_ns < ANSWER_MOST_NS; passed_ns += (uint64_t)nap.tv_nsec) {
        bool is_changed = (uint32_t)load(growth, AT_CHANGES) != changes;
        if ((is_changed || !is_change_due) && (uint32_t)load(growth, AT_STATE) != STATE_ASKING) {
            return true;
        }
        nanosleep(&nap, NULL);
        nap.tv_nsec = nap.tv_nsec * 2 < NAP_MOST_NS ? nap.tv_nsec * 2 : NAP_MOST_NS;
    }
    return false;
}

static bool ask_registers(const struct fgv_growth *growth, uint64_t bytes)
{
    if (!await_idle(growth, false, 0)) { /* who asked before may have died */
        return false;
    }
    uint32_t changes = (uint32_t)load(growth, AT_CHANGES);
    *(volatile uint64_t *)(volatile void *)(growth->registers + AT_WANTED) = bytes;
    return await_idle(growth, true, changes) && load(growth, AT_STATE) >> 32 == 0;
}

static bool ask_module(const struct fgv_growth *growth, uint64_t bytes)
{
    int result;
    do {
        result = ioctl(growth->window, FGV_MEMORY_GROW, &bytes);
    } while (result != 0 && errno == EINTR);
    return result == 0;
}

bool fgv_growth_ask(const struct fgv_growth *growth, uint64_t bytes)
{
    return growth->registers ? ask_registers(growth, bytes) : ask_module(growth, bytes);
}

bool fgv_growth_map(const struct fgv_growth *growth, uint8_t *window, uint64_t from, uint64_t to)
{
    void *wanted = window + from;
    return mmap(wanted, to - from, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, growth->window, (off_t)from) ==
           wanted;
}
