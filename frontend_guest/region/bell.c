/* The kernel module's device: see bell.h. */
#include "region/bell.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ivshmem/device.h"

/* Before there is a client whose entry could say it. */
static _Atomic uint32_t is_in_use_early = 1;

static bool device_ask(int file, struct fgv_device_info *info)
{
    return ioctl(file, FGV_DEVICE_INFO, info) == 0 && info->abi == FGV_DEVICE_ABI;
}

uint64_t fgv_device_region_bytes(int file)
{
    struct fgv_device_info info;
    return device_ask(file, &info) ? info.region_bytes : 0;
}

static bool are_wanted(void)
{
    const char *wake = getenv("FAIRGV_WAKE");
    return !wake || strcmp(wake, "poll") != 0;
}

bool fgv_bells_open(struct fgv_bells *bells, int file)
{
    struct fgv_device_info info;
    if (!are_wanted() || !device_ask(file, &info) || info.nr_vectors == 0) {
        return false;
    }
    void *rung = mmap(NULL, FGV_PAGE_BYTES, PROT_READ, MAP_SHARED, file, (off_t)FGV_DEVICE_RUNG_OFFSET);
    if (rung == MAP_FAILED) {
        return false;
    }
    bells->rung = rung;
    bells->nr_vectors = info.nr_vectors;
    bells->bell = (struct fgv_guest_bell){.device = file, .rung = rung, .is_in_use = &is_in_use_early};
    return true;
}

void fgv_bells_close(struct fgv_bells *bells)
{
    munmap((void *)(uintptr_t)bells->rung, FGV_PAGE_BYTES);
    close(bells->bell.device);
}

void fgv_bells_assign(struct fgv_bells *bells, struct fgv_client *client, uint32_t index)
{
    uint32_t most = bells->nr_vectors < FGV_NR_GUEST_VECTORS ? bells->nr_vectors : FGV_NR_GUEST_VECTORS;
    bells->bell.vector = index % most;
    bells->bell.worker_peer = FGV_PEER_WORKERS + index;
    bells->bell.rung = bells->rung + bells->bell.vector;
    bells->bell.is_in_use = &client->has_bell;
    client->bell_vector = bells->bell.vector;
    /* relaxed: published with the client's state */
    atomic_store_explicit(&client->has_bell, 1, memory_order_relaxed);
}
