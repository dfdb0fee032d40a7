/*
 * The control page as the daemon handles it: laying it out, giving out slots, reading accounts. What moves the grant is
 * in grant.c.
 *
 * Slots are given out by one process, the daemon, so taking one needs no compare and exchange.
 */
#define _GNU_SOURCE
#include "page/control.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "page/account.h"
#include "page/bell.h"
#include "page/outlook.h"
#include "page/sets.h"

/* The daemon waits so long after a ring: at a hand-over the cores of a small host belong to who hands over and who is
 * handed to. */
#define FGW_SETTLING_NS UINT64_C(1000000)
/* While the same vGPUs have or want the GPU a hand-over is no news: how they stand with each ns that they are charged
 * is known. What the daemon is to hear of it, it hears so often. */
#define FGW_STEADY_NS UINT64_C(30000000)

static struct fgw_control *map_page(int fd)
{
    void *page = mmap(NULL, FGW_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

struct fgw_control *fgw_control_format(int fd, uint64_t slice_ns, bool is_preemptive)
{
    if (ftruncate(fd, (off_t)FGW_CONTROL_BYTES) != 0) {
        return NULL;
    }
    struct fgw_control *control = map_page(fd);
    if (control) {
        memset(control, 0, sizeof(*control));
        control->version = FGW_CONTROL_VERSION;
        control->counters_layout = FGW_COUNTERS_LAYOUT;
        control->is_preemptive = is_preemptive;
        atomic_store(&control->slice_ns, slice_ns);
        atomic_store(&control->daemon_pid, (uint32_t)getpid());
        control->magic = FGW_CONTROL_MAGIC;
    }
    return control;
}

struct fgw_control *fgw_control_open(int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return NULL;
    }
    if (status.st_size < (off_t)sizeof(struct fgw_control)) {
        errno = EPROTO; /* touching pages past its end would be SIGBUS */
        return NULL;
    }
    struct fgw_control *control = map_page(fd);
    if (control && (control->magic != FGW_CONTROL_MAGIC || control->version != FGW_CONTROL_VERSION ||
                    control->counters_layout != FGW_COUNTERS_LAYOUT)) {
        fgw_control_close(control);
        errno = EPROTO;
        return NULL;
    }
    return control;
}

void fgw_control_close(struct fgw_control *control)
{
    munmap(control, FGW_CONTROL_BYTES);
}

int fgw_control_vgpu_take(struct fgw_control *control, uint64_t quota_bytes)
{
    for (uint32_t index = 0; index < FGW_MAX_VGPUS; index++) {
        struct fgw_vgpu_slot *vgpu = &control->vgpus[index];
        if (!atomic_load(&vgpu->is_used)) {
            for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
                atomic_store(&vgpu->members.words[i], 0);
            }
            atomic_store(&vgpu->used_ns, 0);
            atomic_store(&vgpu->held_ns, 0);
            atomic_store(&vgpu->nr_grants, 0);
            atomic_store(&vgpu->has_long_turns, 0);
            atomic_store(&vgpu->charged_until_ns, 0);
            atomic_store(&vgpu->quota_bytes, quota_bytes);
            atomic_store(&vgpu->standing, INFINITY); /* behind all others, until the policy has spoken */
            atomic_store(&vgpu->standing_per_ns, 0);
            atomic_store(&vgpu->is_used, 1);
            return (int)index;
        }
    }
    return -1;
}

void fgw_control_vgpu_free(struct fgw_control *control, uint32_t index)
{
    struct fgw_vgpu_slot *vgpu = &control->vgpus[index];
    for (uint32_t slot = 0; slot < FGW_MAX_WORKERS; slot++) {
        if (fgw_set_has(&vgpu->members, slot)) {
            fgw_grant_repair(control, slot);
        }
    }
    atomic_store(&vgpu->is_used, 0);
}

void fgw_control_set_quota(struct fgw_control *control, uint32_t index, uint64_t quota_bytes)
{
    atomic_store(&control->vgpus[index].quota_bytes, quota_bytes);
}

bool fgw_control_vgpu_read(struct fgw_control *control, uint32_t index, struct fgw_vgpu_reading *reading)
{
    struct fgw_vgpu_slot *vgpu = &control->vgpus[index];
    if (!atomic_load(&vgpu->is_used)) {
        return false;
    }
    struct fgw_grantee grantee = {.control = control, .vgpu = vgpu};
    uint64_t quota_bytes;
    uint64_t memory_bytes = fgw_quota_used(&grantee, &quota_bytes);
    *reading = (struct fgw_vgpu_reading){
        .used_ns = atomic_load(&vgpu->used_ns),
        .held_ns = atomic_load(&vgpu->held_ns),
        .charged_until_ns = atomic_load(&vgpu->charged_until_ns),
        .nr_grants = atomic_load(&vgpu->nr_grants),
        .memory_bytes = memory_bytes,
        .quota_bytes = quota_bytes,
        .waiting_since_ns = atomic_load(&vgpu->waiting_since_ns),
        .nr_workers = fgw_set_nr_common(&vgpu->members, &vgpu->members),
        .nr_waiting = fgw_set_nr_common(&vgpu->members, &control->waiting),
    };
    return true;
}

int fgw_control_worker_take(struct fgw_control *control)
{
    for (uint32_t slot = 0; slot < FGW_MAX_WORKERS; slot++) {
        struct fgw_worker_slot *worker = &control->workers[slot];
        if (atomic_load(&worker->state) == FGW_WORKER_FREE) {
            memset(worker, 0, sizeof(*worker));
            atomic_store(&worker->state, FGW_WORKER_WARM);
            return (int)slot;
        }
    }
    return -1;
}

void fgw_control_worker_free(struct fgw_control *control, uint32_t slot)
{
    fgw_grant_repair(control, slot);
    atomic_store(&control->workers[slot].state, FGW_WORKER_FREE);
}

void fgw_control_worker_command(struct fgw_control *control, uint32_t slot, uint32_t command)
{
    atomic_store(&control->workers[slot].command, command);
}

bool fgw_control_worker_read(struct fgw_control *control, uint32_t slot, struct fgw_worker_reading *reading)
{
    struct fgw_worker_slot *worker = &control->workers[slot];
    uint32_t state = atomic_load(&worker->state);
    if (state == FGW_WORKER_FREE) {
        return false;
    }
    *reading = (struct fgw_worker_reading){
        .state = state <= FGW_WORKER_ENDED ? state : FGW_WORKER_ENDED,
        .pid = atomic_load(&worker->pid),
        .vgpu = atomic_load(&worker->vgpu),
        .client = atomic_load(&worker->client),
        .is_user = fgw_set_has(&control->users, slot),
        .is_waiting = fgw_set_has(&control->waiting, slot),
        .phase = atomic_load(&worker->phase),
        .stalled_since_ns = atomic_load(&worker->stalled_since_ns),
    };
    fgw_counters_read(worker, &reading->counters);
    for (uint32_t i = 0; i < sizeof(reading->program) - 1; i++) {
        char letter = worker->program[i];
        reading->program[i] = letter >= ' ' && letter <= '~' ? letter : '\0';
        if (!reading->program[i]) {
            break;
        }
    }
    return true;
}

void fgw_control_set_standing(struct fgw_control *control, uint32_t index, double standing, double per_ns)
{
    atomic_store(&control->vgpus[index].standing, standing);
    atomic_store(&control->vgpus[index].standing_per_ns, per_ns);
}

double fgw_control_standing(struct fgw_control *control, uint32_t index)
{
    return fgw_vgpu_standing(&control->vgpus[index]);
}

uint64_t fgw_control_slice_ns(struct fgw_control *control)
{
    return atomic_load(&control->slice_ns);
}

void fgw_control_set_slice_ns(struct fgw_control *control, uint64_t slice_ns)
{
    atomic_store(&control->slice_ns, slice_ns);
}

uint32_t fgw_control_wait_news(struct fgw_control *control, uint32_t seen, uint64_t active, uint64_t timeout_ns)
{
    const uint64_t begun_ns = fgw_clock_ns(), steady_ns = timeout_ns < FGW_STEADY_NS ? timeout_ns : FGW_STEADY_NS;
    uint64_t end_ns = begun_ns + timeout_ns;
    for (;;) {
        const uint64_t now_ns = fgw_clock_ns();
        uint32_t bell = fgw_control_wait_bell(control, seen, end_ns > now_ns ? end_ns - now_ns : 0);
        if (bell == seen) {
            return bell;
        }
        const struct timespec settling = {.tv_nsec = FGW_SETTLING_NS};
        nanosleep(&settling, NULL);
        bell = atomic_load(&control->daemon_bell);
        if (fgw_control_active(control) != active || fgw_clock_ns() - begun_ns >= steady_ns) {
            return bell;
        }
        seen = bell;
        end_ns = begun_ns + steady_ns;
    }
}
