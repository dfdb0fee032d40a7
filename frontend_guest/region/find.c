/*
 * Finding the region: the file that FAIRGV_REGION names, else the device of our kernel module, else, which only root
 * may, the first ivshmem device on the PCI bus that carries our magic number.
 *
 * The region is mapped at an address that guest program and worker can both have, because pinned memory has one address
 * on both sides. The worker maps it where the guest says, so the guest picks from a range that ordinary programs leave
 * empty, and starts at a place that depends on its process number: workers are processes of their own, but a host
 * program under fairgv-run may open several regions.
 *
 * Wrong when: a program reserved all of 0x6f00_0000_0000 .. 0x6f80_0000_0000 for itself. It then gets "no address".
 */
#include "region/find.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/log.h"
#include "base/node.h"
#include "base/pci.h"
#include "cuda_api/wire.h"

#define FIRST_ADDRESS       UINT64_C(0x6f0000000000)
#define ADDRESS_RANGE_BYTES UINT64_C(0x8000000000)
#define GIB                 UINT64_C(0x40000000)
#define NR_TRIES            64u
#define MAP_FIXED_NOREPLACE_FLAG                                                                                       \
    0x100000 /* Linux 4.17; older kernels take the address as a hint, which is checked below */

#define IVSHMEM_DEVICE "0x1110"
#define MODULE_DEVICES "/dev/fairgv"

/* Maps the region at an address where the window's may follow, which are kept but not mapped. */
static uint8_t *map_at_free_address(int file, uint64_t region_bytes, uint64_t window_bytes)
{
    const uint64_t bytes = region_bytes + window_bytes;
    uint64_t stride = (bytes + GIB - 1) / GIB * GIB;
    uint64_t nr_places = stride == 0 || stride > ADDRESS_RANGE_BYTES ? 1 : ADDRESS_RANGE_BYTES / stride;
    uint64_t start = (uint64_t)getpid() * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    for (uint64_t i = 0; i < NR_TRIES && i < nr_places; i++) {
        uint64_t address = FIRST_ADDRESS + (start + i) % nr_places * stride;
        void *wanted = (void *)(uintptr_t)address;
        void *base = mmap(wanted, bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE_FLAG, -1, 0);
        if (base == wanted &&
            mmap(base, region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == wanted) {
            return base;
        }
        if (base != MAP_FAILED) {
            munmap(base, bytes);
        }
    }
    return NULL;
}

/* True when the first page carries our magic. */
static bool has_magic(int file)
{
    void *page = mmap(NULL, FGV_PAGE_BYTES, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) {
        return false;
    }
    /* acquire: only a look, the checks of fgv_region_check come after its own */
    bool is_ours =
        atomic_load_explicit(&((struct fgv_region_header *)page)->magic, memory_order_acquire) == FGV_REGION_MAGIC;
    munmap(page, FGV_PAGE_BYTES);
    return is_ours;
}

static int open_region(char *path, size_t path_bytes)
{
    const char *named = fgv_environment("FAIRGV_REGION");
    if (named && named[0] != '\0') {
        snprintf(path, path_bytes, "%s", named);
        int file = open(path, O_RDWR | O_CLOEXEC);
        if (file < 0) {
            fgv_log_cause(FGV_CAUSE_NO_REGION, "no GPU: cannot open the region %s of FAIRGV_REGION: %s", path,
                          strerror(errno));
        }
        return file;
    }
    bool is_module_denied = false;
    int file = fgv_node_open(MODULE_DEVICES, has_magic, path, path_bytes, &is_module_denied);
    if (file >= 0) {
        return file;
    }
    if (is_module_denied) {
        fgv_log_cause(FGV_CAUSE_NO_REGION,
                      "no GPU: %s is not for this user; add the user to the group fairgv and log in again", path);
        return -1;
    }
    bool denied = false;
    file = fgv_pci_open(IVSHMEM_DEVICE, "resource2", has_magic, path, path_bytes, &denied);
    if (file < 0 && denied) {
        fgv_log_cause(FGV_CAUSE_NO_REGION,
                      "no GPU: %s may only be opened by root; install FairGV's kernel module (fairgv-guest check says "
                      "how it stands), or run the program as root",
                      path);
    } else if (file < 0) {
        fgv_log_cause(FGV_CAUSE_NO_REGION,
                      "no GPU: no FairGV device on the PCI bus and FAIRGV_REGION is not set; "
                      "on the host, attach one with 'fairgv-host attach DOMAIN' or start programs with fairgv-run");
    }
    return file;
}

static CUresult status_tell(enum fgv_region_status status, const char *path)
{
    const char *text = fgv_region_status_text(status);
    switch (status) {
    case FGV_REGION_OK:
        return CUDA_SUCCESS;
    case FGV_REGION_NO_MAGIC:
        fgv_log_cause(FGV_CAUSE_NO_REGION, "no GPU: %s: %s", path, text);
        return CUDA_ERROR_NO_DEVICE;
    case FGV_REGION_WRONG_VERSION:
        fgv_log_cause(FGV_CAUSE_WRONG_VERSION, "%s: %s", path, text);
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    case FGV_REGION_WRONG_TABLE:
        fgv_log_cause(FGV_CAUSE_WRONG_TABLE, "%s: %s", path, text);
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    case FGV_REGION_DAMAGED:
        break;
    }
    fgv_log_cause(FGV_CAUSE_DAMAGED, "%s: %s", path, text);
    return CUDA_ERROR_NOT_INITIALIZED;
}

static char path[320];

int fgv_find_reopen(void)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0 && !has_magic(file)) {
        close(file);
        file = -1;
    }
    return file;
}

static uint64_t region_bytes(int file)
{
    /* Not lseek: until Linux 6.7 the end of a PCI resource file is 0 for it. fstat() itself is newer than glibc 2.28.
     */
    struct stat status;
    uint64_t bytes = fgv_device_region_bytes(file);
    return bytes != 0 || syscall(SYS_fstat, file, &status) != 0 ? bytes : (uint64_t)status.st_size;
}

/* The file is needed no more, unless it rings. */
static void bells_take(struct fgv_region *region, struct fgv_bells *bells, int file)
{
    if (region->wake == FGV_WAKE_BELL && bells && fgv_bells_open(bells, file)) {
        region->guest_bell = &bells->bell;
        return;
    }
    close(file);
    if (region->wake == FGV_WAKE_BELL) {
        region->wake = FGV_WAKE_POLL;
    }
}

/* Maps the region, and keeps the addresses of a window where there is a device for one and room. */
static uint8_t *map_with_window(int file, uint64_t bytes, struct fgv_growth *growth)
{
    if (growth && fgv_growth_open(growth)) {
        uint8_t *base = map_at_free_address(file, bytes, growth->window_bytes);
        if (base) {
            return base;
        }
        fgv_growth_close(growth);
    }
    return map_at_free_address(file, bytes, 0);
}

static uint64_t window_bytes_of(const struct fgv_growth *growth)
{
    return growth ? growth->window_bytes : 0;
}

CUresult fgv_find_region(struct fgv_region *region, struct fgv_bells *bells, struct fgv_growth *growth)
{
    int file = open_region(path, sizeof(path));
    if (file < 0) {
        return CUDA_ERROR_NO_DEVICE;
    }
    uint64_t bytes = region_bytes(file);
    if (bytes < FGV_PAGE_BYTES || !has_magic(file)) {
        close(file);
        return status_tell(FGV_REGION_NO_MAGIC, path);
    }
    uint8_t *base = map_with_window(file, bytes, growth);
    if (!base) {
        fgv_log_cause(FGV_CAUSE_SYSTEM, "no address is free to map %s (%llu bytes): %s", path,
                      (unsigned long long)bytes, strerror(errno));
        close(file);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    enum fgv_region_status status = fgv_region_check(base, bytes, FGV_TABLE_HASH, region);
    if (status == FGV_REGION_OK) {
        region->window.owners = (_Atomic uint16_t *)(void *)(base + bytes);
        region->window.bytes = window_bytes_of(growth);
        bells_take(region, bells, file);
    } else {
        munmap(base, bytes + window_bytes_of(growth));
        if (growth) {
            fgv_growth_close(growth);
        }
        close(file);
    }
    return status_tell(status, path);
}

void fgv_find_release(struct fgv_region *region, struct fgv_bells *bells, struct fgv_growth *growth)
{
    if (region->guest_bell) {
        fgv_bells_close(bells);
    }
    munmap(region->base, region->region_bytes + region->window.bytes);
    fgv_growth_close(growth);
}
