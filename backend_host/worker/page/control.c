/*
 * The control page as the daemon handles it: laying it out, giving out slots, reading accounts. What moves the grant is
 * in grant.c.
 *
 * Slots are given out by one process, the daemon, so taking one needs no compare and exchange.
 */
#define _GNU_SOURCE
#include "page/control.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "page/account.h"
#include "page/allowance.h"
#include "page/bell.h"
#include "page/lives.h"
#include "page/outlook.h"
#include "page/room.h"
#include "page/sets.h"
#include "page/shares.h"
#include "page/space.h"

/* The daemon waits so long after a ring: at a hand-over the cores of a small host belong to who hands over and who is
 * handed to. */
#define FGW_SETTLING_NS UINT64_C(1000000)
/* While the same vGPUs have or want the GPU a hand-over is no news: how they stand with each ns that they are charged
 * is known. What the daemon is to hear of it, it hears so often. */
#define FGW_STEADY_NS UINT64_C(30000000)

/* Shared memory objects of a page, by their places among the descriptors. */
enum { DECIDED, GRANT, LIVES, OWN, NR_OBJECTS = OWN + FGW_MAX_VGPUS };
_Static_assert(NR_OBJECTS == FGW_CONTROL_OBJECTS, "objects");

static void *map_object(int fd, size_t bytes, int protection)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return NULL;
    }
    if (status.st_size < (off_t)bytes) {
        errno = EPROTO; /* touching pages past its end would be SIGBUS */
        return NULL;
    }
    void *mapped = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

/* Maps a vGPU's own pages, of others the account. */
static bool map_own(struct fgw_control *control, uint32_t index, int fd, bool is_own)
{
    if (!is_own) {
        control->accounts[index] = map_object(fd, sizeof(struct fgw_account), PROT_READ);
        return control->accounts[index] != NULL;
    }
    control->own[index] = map_object(fd, sizeof(struct fgw_own), PROT_READ | PROT_WRITE);
    control->accounts[index] = control->own[index] ? &control->own[index]->account : NULL;
    return control->own[index] != NULL;
}

/* Maps all of them; of the vGPUs `vgpu` alone writable, or all for a daemon. */
static struct fgw_control *map_page(const int *fds, uint32_t vgpu, bool is_daemon)
{
    struct fgw_control *control = calloc(1, sizeof(*control));
    if (!control) {
        return NULL;
    }
    control->life = -1;
    control->lives = fcntl(fds[LIVES], F_DUPFD_CLOEXEC, 0);
    const int of_decided = is_daemon ? PROT_READ | PROT_WRITE : PROT_READ;
    control->decided = map_object(fds[DECIDED], sizeof(struct fgw_decided), of_decided);
    control->shared =
        control->decided ? map_object(fds[GRANT], sizeof(struct fgw_grant), PROT_READ | PROT_WRITE) : NULL;
    control->grant = control->shared;
    bool is_mapped = control->lives >= 0 && control->shared != NULL;
    for (uint32_t index = 0; is_mapped && index < FGW_MAX_VGPUS; index++) {
        is_mapped = map_own(control, index, fds[OWN + index], is_daemon || index == vgpu);
    }
    if (!is_mapped) {
        const int error = errno;
        fgw_control_close(control);
        errno = error;
        return NULL;
    }
    return control;
}

struct fgw_control *fgw_control_format(const int *fds, uint64_t slice_ns, bool is_preemptive)
{
    if (ftruncate(fds[DECIDED], (off_t)sizeof(struct fgw_decided)) != 0 ||
        ftruncate(fds[GRANT], (off_t)sizeof(struct fgw_grant)) != 0) {
        return NULL;
    }
    for (uint32_t index = 0; index < FGW_MAX_VGPUS; index++) {
        if (ftruncate(fds[OWN + index], (off_t)sizeof(struct fgw_own)) != 0) {
            return NULL;
        }
    }
    struct fgw_control *control = map_page(fds, 0, true);
    if (control && (control->life = fgw_life_begin(control->lives, FGW_LIFE_OF_DAEMON)) < 0) {
        const int error = errno;
        fgw_control_close(control);
        errno = error;
        return NULL;
    }
    if (control) {
        struct fgw_decided *decided = control->decided;
        decided->version = FGW_CONTROL_VERSION;
        decided->counters_layout = FGW_COUNTERS_LAYOUT;
        decided->is_preemptive = is_preemptive;
        atomic_store(&decided->slice_ns, slice_ns);
        decided->magic = FGW_CONTROL_MAGIC;
    }
    return control;
}

/* Maps a page that is there, if it is one of this version. */
static struct fgw_control *map_formatted(const int *fds, uint32_t vgpu, bool is_daemon)
{
    struct fgw_control *control = map_page(fds, vgpu, is_daemon);
    const struct fgw_decided *decided = control ? control->decided : NULL;
    if (control && (decided->magic != FGW_CONTROL_MAGIC || decided->version != FGW_CONTROL_VERSION ||
                    decided->counters_layout != FGW_COUNTERS_LAYOUT)) {
        fgw_control_close(control);
        errno = EPROTO;
        return NULL;
    }
    return control;
}

struct fgw_control *fgw_control_open(const int *fds, uint32_t vgpu)
{
    if (vgpu >= FGW_MAX_VGPUS) {
        errno = EINVAL;
        return NULL;
    }
    return map_formatted(fds, vgpu, false);
}

struct fgw_control *fgw_control_adopt(const int *fds)
{
    struct fgw_control *control = map_formatted(fds, 0, true);
    if (control && (control->life = fgw_life_begin(control->lives, FGW_LIFE_OF_DAEMON)) < 0) {
        const int error = errno;
        fgw_control_close(control);
        errno = error;
        return NULL;
    }
    if (control && atomic_load(&control->decided->epoch) % 2 != 0) {
        atomic_fetch_add(&control->decided->epoch, 1); /* who waited has come back to what all share already */
    }
    return control;
}

static void close_descriptor(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

static void unmap_object(void *mapped, size_t bytes)
{
    if (mapped) {
        munmap(mapped, bytes);
    }
}

void fgw_control_close(struct fgw_control *control)
{
    close_descriptor(control->life);
    close_descriptor(control->lives);
    unmap_object(control->decided, sizeof(struct fgw_decided));
    unmap_object(control->shared, sizeof(struct fgw_grant));
    for (uint32_t index = 0; index < FGW_MAX_VGPUS; index++) {
        if (control->own[index]) {
            unmap_object(control->own[index], sizeof(struct fgw_own));
        } else {
            unmap_object(control->accounts[index], sizeof(struct fgw_account));
        }
    }
    free(control);
}

int fgw_control_vgpu_take(struct fgw_control *control, uint64_t quota_bytes)
{
    for (uint32_t index = 0; index < FGW_MAX_VGPUS; index++) {
        struct fgw_decided_vgpu *vgpu = &control->decided->vgpus[index];
        if (!atomic_load(&vgpu->is_used)) {
            struct fgw_seat *seat = &control->grant->seats[index];
            memset(control->accounts[index], 0, sizeof(*control->accounts[index]));
            for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
                atomic_store(&vgpu->members.words[i], 0);
            }
            atomic_store(&seat->nr_grants, 0);
            atomic_store(&seat->nr_unused, 0);
            atomic_store(&seat->spared_until_ns, 0);
            atomic_store(&control->own[index]->grant.word, 0);
            atomic_store(&vgpu->quota_bytes, quota_bytes);
            atomic_store(&vgpu->limit_permille, 0);
            atomic_store(&vgpu->suspension, 0);
            atomic_store(&vgpu->motion, FGW_MOTION_NONE);
            for (uint32_t i = 0; i < FGW_NR_LIMITED; i++) {
                atomic_store(&vgpu->most[i], 0);
            }
            fgw_control_set_standing(control, index, INFINITY, 0, 0); /* behind all, until the policy has spoken */
            atomic_fetch_add(&vgpu->generation, 1);
            atomic_store(&vgpu->is_used, 1);
            return (int)index;
        }
    }
    return -1;
}

void fgw_control_vgpu_free(struct fgw_control *control, uint32_t index)
{
    struct fgw_decided_vgpu *vgpu = &control->decided->vgpus[index];
    for (uint32_t slot = 0; slot < FGW_MAX_WORKERS; slot++) {
        if (fgw_set_has(&vgpu->members, slot)) {
            fgw_control_repair(control, slot);
        }
    }
    fgw_control_set_urgent(control, index, false);
    fgw_control_set_split(control, index, 0);
    fgw_control_set_class(control, index, FGW_CLASS_FAIR, 0); /* others look for the critical one of their space */
    atomic_store(&vgpu->is_used, 0);
}

void fgw_control_set_quota(struct fgw_control *control, uint32_t index, uint64_t quota_bytes)
{
    atomic_store(&control->decided->vgpus[index].quota_bytes, quota_bytes);
}

void fgw_control_set_share_limit(struct fgw_control *control, uint32_t index, uint32_t permille)
{
    struct fgw_decided_vgpu *vgpu = &control->decided->vgpus[index];
    _Atomic uint64_t *until_ns = &control->accounts[index]->limited_until_ns;
    const uint64_t slice_ns = atomic_load(&control->decided->slice_ns);
    const struct fgw_rate after = {.permille = permille < FGW_ALLOWANCE_WHOLE ? permille : 0, .slice_ns = slice_ns};
    const struct fgw_rate before = {.permille = atomic_exchange(&vgpu->limit_permille, (uint32_t)after.permille),
                                    .slice_ns = slice_ns};
    if (before.permille == 0 || after.permille == 0) {
        atomic_store(until_ns, 0);
    } else {
        uint64_t word = atomic_load(until_ns);
        while (!atomic_compare_exchange_weak(until_ns, &word,
                                             fgw_allowance_changed(word, before, after, fgw_clock_ns()))) {
        }
    }
    atomic_fetch_add(&control->nr_limits[index], 1);
}

void fgw_control_set_limited_until(struct fgw_control *control, uint32_t index, uint64_t until_ns)
{
    atomic_store(&control->accounts[index]->limited_until_ns, until_ns);
}

void fgw_control_set_limit(struct fgw_control *control, uint32_t index, uint32_t limited, uint64_t most)
{
    if (limited < FGW_NR_LIMITED) {
        atomic_store(&control->decided->vgpus[index].most[limited], most);
    }
}

/* Counts its workers. One that has ended by itself is a member until the daemon has heard of it. */
static uint32_t nr_workers(const struct fgw_control *control, uint32_t index)
{
    uint32_t nr = 0;
    for (uint32_t slot = 0; slot < FGW_MAX_WORKERS; slot++) {
        nr += fgw_set_has(&control->decided->vgpus[index].members, slot) &&
              atomic_load(&control->own[index]->workers[slot].state) != FGW_WORKER_ENDED;
    }
    return nr;
}

static uint64_t back_ns(const struct fgw_control *control, uint32_t index)
{
    const struct fgw_rate rate = {.permille = atomic_load(&control->decided->vgpus[index].limit_permille),
                                  .slice_ns = atomic_load(&control->decided->slice_ns)};
    const uint64_t word = atomic_load(&control->accounts[index]->limited_until_ns);
    return rate.permille != 0 ? fgw_allowance_return_ns(word, rate) : 0;
}

bool fgw_control_vgpu_read(struct fgw_control *control, uint32_t index, struct fgw_vgpu_reading *reading)
{
    const struct fgw_decided_vgpu *vgpu = &control->decided->vgpus[index];
    const struct fgw_account *account = control->accounts[index];
    if (!atomic_load(&vgpu->is_used)) {
        return false;
    }
    uint64_t quota_bytes;
    const uint64_t memory_bytes = fgw_vgpu_memory_bytes(control, index, &quota_bytes);
    *reading = (struct fgw_vgpu_reading){
        .used_ns = atomic_load(&account->used_ns),
        .held_ns = fgw_vgpu_held_ns(control, index),
        .out_of_turn_ns = atomic_load(&account->out_of_turn_ns),
        .charged_until_ns = atomic_load(&account->charged_until_ns),
        .nr_grants = atomic_load(&control->grant->seats[index].nr_grants),
        .memory_bytes = memory_bytes,
        .quota_bytes = quota_bytes,
        .waiting_since_ns = atomic_load(&account->waiting_since_ns),
        .limited_until_ns = atomic_load(&account->limited_until_ns),
        .back_ns = back_ns(control, index),
        .limit_permille = atomic_load(&vgpu->limit_permille),
        .nr_workers = nr_workers(control, index),
        .nr_waiting = fgw_set_nr_common(&vgpu->members, &control->grant->waiting),
    };
    return true;
}

int fgw_control_worker_take(struct fgw_control *control)
{
    for (uint32_t slot = 0; slot < FGW_MAX_WORKERS; slot++) {
        struct fgw_decided_worker *worker = &control->decided->workers[slot];
        if (atomic_load(&worker->state) == FGW_WORKER_FREE) {
            memset(worker, 0, sizeof(*worker));
            atomic_store(&worker->state, FGW_WORKER_WARM);
            return (int)slot;
        }
    }
    return -1;
}

void fgw_control_worker_assign(struct fgw_control *control, uint32_t slot, uint32_t pid, uint32_t vgpu, uint32_t client)
{
    struct fgw_decided_worker *worker = &control->decided->workers[slot];
    memset(&control->own[vgpu]->workers[slot], 0, sizeof(struct fgw_worker_slot));
    atomic_store(&control->accounts[vgpu]->allocated_bytes[slot], 0);
    fgw_shares_clear(control, vgpu, slot);
    atomic_store(&worker->target_bytes, 0);
    atomic_store(&worker->withheld_bytes, 0);
    atomic_store(&worker->pid, pid);
    atomic_store(&worker->vgpu, vgpu);
    atomic_store(&worker->client, client);
    atomic_store(&worker->state, FGW_WORKER_SERVING);
    fgw_set_add(&control->decided->vgpus[vgpu].members, slot);
}

int fgw_control_worker_begin(const struct fgw_control *control, uint32_t slot)
{
    return fgw_life_begin(control->lives, slot);
}

void fgw_control_repair(struct fgw_control *control, uint32_t slot)
{
    struct fgw_decided_worker *worker = &control->decided->workers[slot];
    if (atomic_load(&worker->state) == FGW_WORKER_SERVING) {
        const uint32_t vgpu = atomic_load(&worker->vgpu);
        fgw_grant_clear(control, slot);
        atomic_store(&control->own[vgpu]->workers[slot].memory_bytes, 0);
        atomic_store(&control->own[vgpu]->workers[slot].displaced_since_ns, 0);
        atomic_store(&control->own[vgpu]->workers[slot].uncharged_since_ns, 0);
        atomic_store(&control->accounts[vgpu]->allocated_bytes[slot], 0);
        fgw_control_take_split_back(control, vgpu); /* its space clears the word */
        fgw_set_remove(&control->decided->vgpus[vgpu].members, slot);
    }
    atomic_store(&worker->state, FGW_WORKER_ENDED);
    fgw_control_ring_bell(control);
}

void fgw_control_worker_free(struct fgw_control *control, uint32_t slot)
{
    fgw_control_repair(control, slot);
    atomic_store(&control->decided->workers[slot].state, FGW_WORKER_FREE);
}

void fgw_control_worker_command(struct fgw_control *control, uint32_t slot, uint32_t command)
{
    atomic_store(&control->decided->workers[slot].command, command);
}

bool fgw_control_worker_read(struct fgw_control *control, uint32_t slot, struct fgw_worker_reading *reading)
{
    const struct fgw_decided_worker *worker = &control->decided->workers[slot];
    const uint32_t state = atomic_load(&worker->state), vgpu = atomic_load(&worker->vgpu);
    if (state == FGW_WORKER_FREE) {
        return false;
    }
    *reading = (struct fgw_worker_reading){
        .state = state,
        .pid = atomic_load(&worker->pid),
        .vgpu = vgpu,
        .client = atomic_load(&worker->client),
        .is_user = fgw_set_has(&control->grant->users, slot),
        .is_waiting = fgw_set_has(&control->grant->waiting, slot),
    };
    if (reading->pid == 0) {
        return true; /* it has told nothing yet */
    }
    struct fgw_worker_slot *own = &control->own[vgpu]->workers[slot];
    const uint32_t told = atomic_load(&own->state);
    if (state == FGW_WORKER_SERVING && told != FGW_WORKER_SERVING) {
        reading->state = told == FGW_WORKER_ENDED ? FGW_WORKER_ENDED : FGW_WORKER_WARM;
    }
    reading->is_displaced = atomic_load(&own->displaced_since_ns) != 0;
    reading->is_suspended = fgw_vgpu_is_suspended(control, vgpu, slot);
    reading->sleep = atomic_load(&worker->sleep);
    reading->laid_bytes = atomic_load(&worker->laid_bytes);
    reading->keeps = atomic_load(&own->keeps);
    reading->stage = atomic_load(&own->stage);
    reading->bound = atomic_load(&own->bound);
    reading->phase = atomic_load(&own->phase);
    reading->stalled_since_ns = atomic_load(&own->stalled_since_ns);
    reading->ahead_bytes = atomic_load(&own->ahead_bytes);
    reading->fixed_bytes = atomic_load(&own->fixed_bytes);
    reading->allocated_bytes = atomic_load(&control->accounts[vgpu]->allocated_bytes[slot]);
    fgw_counters_read(own, &reading->counters);
    for (uint32_t i = 0; i < sizeof(reading->program) - 1; i++) {
        const char letter = own->program[i];
        reading->program[i] = letter >= ' ' && letter <= '~' ? letter : '\0';
        if (!reading->program[i]) {
            break;
        }
    }
    return true;
}

void fgw_control_set_standing(struct fgw_control *control, uint32_t index, double standing, double per_ns,
                              uint64_t budget_ns)
{
    struct fgw_decided_vgpu *vgpu = &control->decided->vgpus[index];
    const uint32_t nr = atomic_load(&vgpu->nr_standings) + 1;
    struct fgw_decided_standing *next = &vgpu->standings[nr % 2];
    atomic_store(&next->at_none, standing);
    atomic_store(&next->per_ns, per_ns);
    atomic_store(&vgpu->nr_standings, nr);
    atomic_store(&vgpu->budget_ns, budget_ns);
}

double fgw_control_standing(struct fgw_control *control, uint32_t index)
{
    return fgw_vgpu_standing(control, index).now;
}

bool fgw_control_is_preemptive(const struct fgw_control *control)
{
    return control->decided->is_preemptive != 0;
}

uint64_t fgw_control_slice_ns(struct fgw_control *control)
{
    return atomic_load(&control->decided->slice_ns);
}

void fgw_control_set_slice_ns(struct fgw_control *control, uint64_t slice_ns)
{
    atomic_store(&control->decided->slice_ns, slice_ns);
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
        bell = atomic_load(&control->grant->daemon_bell);
        if (fgw_control_active(control) != active || fgw_clock_ns() - begun_ns >= steady_ns) {
            return bell;
        }
        seen = bell;
        end_ns = begun_ns + steady_ns;
    }
}
