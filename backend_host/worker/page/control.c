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
#include "page/sets.h"

/* After a ring: at a hand-over the cores of a small host belong to who hands over and who is handed to. */
#define FGV_SETTLING_NS UINT64_C(1000000)
/* While the same vGPUs have or want the GPU a hand-over is no news: how they stand with each ns that they are charged
 * is known. What the daemon is to hear of it, it hears so often. */
#define FGV_STEADY_NS UINT64_C(30000000)

static struct fgv_control *map_page(int fd)
{
    void *page = mmap(NULL, FGV_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

struct fgv_control *fgv_control_format(int fd, uint64_t slice_ns, bool is_preemptive)
{
    if (ftruncate(fd, (off_t)FGV_CONTROL_BYTES) != 0) {
        return NULL;
    }
    struct fgv_control *control = map_page(fd);
    if (control) {
        memset(control, 0, sizeof(*control));
        control->version = FGV_CONTROL_VERSION;
        control->counters_layout = FGV_COUNTERS_LAYOUT;
        control->is_preemptive = is_preemptive;
        atomic_store(&control->slice_ns, slice_ns);
        atomic_store(&control->daemon_pid, (uint32_t)getpid());
        control->magic = FGV_CONTROL_MAGIC;
    }
    return control;
}

struct fgv_control *fgv_control_open(int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return NULL;
    }
    if (status.st_size < (off_t)sizeof(struct fgv_control)) {
        errno = EPROTO; /* touching pages past its end would be SIGBUS */
        return NULL;
    }
    struct fgv_control *control = map_page(fd);
    if (control && (control->magic != FGV_CONTROL_MAGIC || control->version != FGV_CONTROL_VERSION ||
                    control->counters_layout != FGV_COUNTERS_LAYOUT)) {
        fgv_control_close(control);
        errno = EPROTO;
        return NULL;
    }
    return control;
}

void fgv_control_close(struct fgv_control *control)
{
    munmap(control, FGV_CONTROL_BYTES);
}

int fgv_control_vgpu_take(struct fgv_control *control, uint64_t quota_bytes)
{
    for (uint32_t index = 0; index < FGV_MAX_VGPUS; index++) {
        struct fgv_vgpu_slot *vgpu = &control->vgpus[index];
        if (!atomic_load(&vgpu->is_used)) {
            for (uint32_t i = 0; i < FGV_WORKER_WORDS; i++) {
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

void fgv_control_vgpu_free(struct fgv_control *control, uint32_t index)
{
    struct fgv_vgpu_slot *vgpu = &control->vgpus[index];
    for (uint32_t slot = 0; slot < FGV_MAX_WORKERS; slot++) {
        if (fgv_set_has(&vgpu->members, slot)) {
            fgv_grant_repair(control, slot);
        }
    }
    atomic_store(&vgpu->is_used, 0);
}

void fgv_control_set_quota(struct fgv_control *control, uint32_t index, uint64_t quota_bytes)
{
    atomic_store(&control->vgpus[index].quota_bytes, quota_bytes);
}

bool fgv_control_vgpu_read(struct fgv_control *control, uint32_t index, struct fgv_vgpu_reading *reading)
{
    struct fgv_vgpu_slot *vgpu = &control->vgpus[index];
    if (!atomic_load(&vgpu->is_used)) {
        return false;
    }
    struct fgv_grantee grantee = {.control = control, .vgpu = vgpu};
    uint64_t quota_bytes;
    uint64_t memory_bytes = fgv_quota_used(&grantee, &quota_bytes);
    *reading = (struct fgv_vgpu_reading){
        .used_ns = atomic_load(&vgpu->used_ns),
        .held_ns = atomic_load(&vgpu->held_ns),
        .charged_until_ns = atomic_load(&vgpu->charged_until_ns),
        .nr_grants = atomic_load(&vgpu->nr_grants),
        .memory_bytes = memory_bytes,
        .quota_bytes = quota_bytes,
        .waiting_since_ns = atomic_load(&vgpu->waiting_since_ns),
        .nr_workers = fgv_set_nr_common(&vgpu->members, &vgpu->members),
        .nr_waiting = fgv_set_nr_common(&vgpu->members, &control->waiting),
    };
    return true;
}

int fgv_control_worker_take(struct fgv_control *control)
{
    for (uint32_t slot = 0; slot < FGV_MAX_WORKERS; slot++) {
        struct fgv_worker_slot *worker = &control->workers[slot];
        if (atomic_load(&worker->state) == FGV_WORKER_FREE) {
            memset(worker, 0, sizeof(*worker));
            atomic_store(&worker->state, FGV_WORKER_WARM);
            return (int)slot;
        }
    }
    return -1;
}

void fgv_control_worker_free(struct fgv_control *control, uint32_t slot)
{
    fgv_grant_repair(control, slot);
    atomic_store(&control->workers[slot].state, FGV_WORKER_FREE);
}

void fgv_control_worker_order(struct fgv_control *control, uint32_t slot, uint32_t order)
{
    atomic_store(&control->workers[slot].order, order);
}

bool fgv_control_worker_read(struct fgv_control *control, uint32_t slot, struct fgv_worker_reading *reading)
{
    struct fgv_worker_slot *worker = &control->workers[slot];
    uint32_t state = atomic_load(&worker->state);
    if (state == FGV_WORKER_FREE) {
        return false;
    }
    *reading = (struct fgv_worker_reading){
        .state = state <= FGV_WORKER_ENDED ? state : FGV_WORKER_ENDED,
        .pid = atomic_load(&worker->pid),
        .vgpu = atomic_load(&worker->vgpu),
        .client = atomic_load(&worker->client),
        .is_user = fgv_set_has(&control->users, slot),
        .is_waiting = fgv_set_has(&control->waiting, slot),
        .stalled_since_ns = atomic_load(&worker->stalled_since_ns),
    };
    fgv_counters_read(worker, &reading->counters);
    for (uint32_t i = 0; i < sizeof(reading->program) - 1; i++) {
        char letter = worker->program[i];
        reading->program[i] = letter >= ' ' && letter <= '~' ? letter : '\0';
        if (!reading->program[i]) {
            break;
        }
    }
    return true;
}

void fgv_control_set_standing(struct fgv_control *control, uint32_t index, double standing, double per_ns)
{
    atomic_store(&control->vgpus[index].standing, standing);
    atomic_store(&control->vgpus[index].standing_per_ns, per_ns);
}

double fgv_control_standing(struct fgv_control *control, uint32_t index)
{
    return fgv_vgpu_standing(&control->vgpus[index]);
}

uint64_t fgv_control_slice_ns(struct fgv_control *control)
{
    return atomic_load(&control->slice_ns);
}

void fgv_control_set_slice_ns(struct fgv_control *control, uint64_t slice_ns)
{
    atomic_store(&control->slice_ns, slice_ns);
}

uint32_t fgv_control_wait_news(struct fgv_control *control, uint32_t seen, uint64_t active, uint64_t timeout_ns)
{
    const uint64_t begun_ns = fgv_clock_ns(), steady_ns = timeout_ns < FGV_STEADY_NS ? timeout_ns : FGV_STEADY_NS;
    uint64_t end_ns = begun_ns + timeout_ns;
    for (;;) {
        const uint64_t now_ns = fgv_clock_ns();
        uint32_t bell = fgv_control_wait_bell(control, seen, end_ns > now_ns ? end_ns - now_ns : 0);
        if (bell == seen) {
            return bell;
        }
        const struct timespec settling = {.tv_nsec = FGV_SETTLING_NS};
        nanosleep(&settling, NULL);
        bell = atomic_load(&control->daemon_bell);
        if (fgv_control_active(control) != active || fgv_clock_ns() - begun_ns >= steady_ns) {
            return bell;
        }
        seen = bell;
        end_ns = begun_ns + steady_ns;
    }
}
