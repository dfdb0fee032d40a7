/* The booster: boost.h says what and why. */
#define _GNU_SOURCE
#include "device/boost.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "page/bell.h"
#include "page/grant.h"
#include "page/outlook.h"
#include "page/sets.h"

#define SLEEP_NS UINT64_C(1000000000)
#define PAUSE_NS 50000L /* between two looks: a worker that its guest took over could ring the bell without end */

/* As in sched_setattr(2): linux/sched/types.h and the sched.h of older libcs exclude each other. */
struct attributes {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns; /* of an ordinary thread: its slice, since Linux 6.12 */
    uint64_t deadline_ns;
    uint64_t period_ns;
};

#define FLAG_RESET_ON_FORK UINT64_C(0x01)

/* One vGPU's. is_known: somebody registered it. */
struct target {
    bool is_known;
    struct fgw_boost_way way;
    int pidfd; /* of the virtual machine, -1: a vGPU of programs of this host */
    uint32_t uid;
    uint32_t nr_tids;
    int32_t *tids;
    uint64_t nr_boosts;
    uint64_t nr_refused;
    /* While boosted: */
    int32_t boosted_tid; /* 0: nobody is */
    uint64_t until_ns;
    struct attributes usual;
};

struct fgw_booster {
    struct fgw_control *control;
    uint64_t limit_ns;
    pthread_mutex_t lock;
    _Atomic bool is_stopping;
    uint32_t sequence; /* of the hand-over that was seen last */
    struct target targets[FGW_MAX_VGPUS];
};

static int set_attributes(int32_t tid, struct attributes *attributes)
{
    attributes->size = sizeof(*attributes);
    return syscall(SYS_sched_setattr, tid, attributes, 0u) == 0 ? 0 : errno;
}

static int get_attributes(int32_t tid, struct attributes *attributes)
{
    memset(attributes, 0, sizeof(*attributes));
    return syscall(SYS_sched_getattr, tid, attributes, sizeof(*attributes), 0u) == 0 ? 0 : errno;
}

static bool is_ordinary(const struct attributes *attributes)
{
    return attributes->policy == SCHED_OTHER || attributes->policy == SCHED_BATCH;
}

static struct attributes boosted(const struct attributes *usual, const struct fgw_boost_way *way)
{
    struct attributes attributes = *usual;
    attributes.policy = way->policy;
    attributes.priority = way->priority;
    attributes.nice = way->policy == SCHED_OTHER ? way->nice : 0;
    attributes.runtime_ns = way->policy != SCHED_OTHER ? 0 : way->slice_ns ? way->slice_ns : usual->runtime_ns;
    attributes.flags = way->sets_reset_on_fork ? FLAG_RESET_ON_FORK : 0;
    return attributes;
}

/* 0 or an errno. Fills `usual`, what `lower_thread` needs. */
static int raise_thread(int32_t tid, const struct fgw_boost_way *way, struct attributes *usual)
{
    int failed = get_attributes(tid, usual);
    if (failed) {
        return failed;
    }
    if (!is_ordinary(usual)) {
        return EBUSY; /* somebody gave it a scheduling of its own */
    }
    struct attributes attributes = boosted(usual, way);
    return set_attributes(tid, &attributes);
}

/* Gives a thread back what it was. */
static int lower_thread(int32_t tid, const struct attributes *usual)
{
    struct attributes attributes = *usual;
    attributes.flags &= FLAG_RESET_ON_FORK;
    return set_attributes(tid, &attributes);
}

int fgw_boost_try(int32_t tid, const struct fgw_boost_way *way)
{
    struct attributes usual;
    int failed = raise_thread(tid, way, &usual);
    return failed ? failed : lower_thread(tid, &usual);
}

bool fgw_boost_clear_left_over(int32_t tid)
{
    struct attributes found;
    if (get_attributes(tid, &found) != 0 || !(found.flags & FLAG_RESET_ON_FORK)) {
        return false;
    }
    if (!is_ordinary(&found)) {
        const struct sched_param none = {.sched_priority = 0};
        return sched_setscheduler(tid, SCHED_OTHER, &none) == 0; /* as nice as it was before */
    }
    struct attributes normal = {.policy = SCHED_OTHER};
    return set_attributes(tid, &normal) == 0;
}

struct fgw_booster *fgw_booster_new(struct fgw_control *control, uint64_t limit_ns)
{
    struct fgw_booster *booster = calloc(1, sizeof(*booster));
    if (booster) {
        booster->control = control;
        booster->limit_ns = limit_ns;
        struct fgw_grant_reading grant;
        fgw_control_grant_read(control, &grant);
        booster->sequence = grant.sequence;
        pthread_mutex_init(&booster->lock, NULL);
    }
    return booster;
}

static void end_boost(struct target *target)
{
    if (target->boosted_tid != 0) {
        lower_thread(target->boosted_tid, &target->usual);
        target->boosted_tid = 0;
    }
}

/* With the lock held. */
static void forget(struct target *target)
{
    end_boost(target);
    if (target->is_known && target->pidfd >= 0) {
        close(target->pidfd);
    }
    free(target->tids);
    *target = (struct target){.pidfd = -1};
}

void fgw_booster_free(struct fgw_booster *booster)
{
    for (uint32_t vgpu = 0; vgpu < FGW_MAX_VGPUS; vgpu++) {
        forget(&booster->targets[vgpu]);
    }
    pthread_mutex_destroy(&booster->lock);
    free(booster);
}

bool fgw_booster_set_vcpus(struct fgw_booster *booster, uint32_t vgpu, const struct fgw_boost_way *way, int pidfd,
                           const int32_t *tids, uint32_t nr)
{
    if (vgpu >= FGW_MAX_VGPUS || nr > FGW_BOOST_MAX_THREADS) {
        return false;
    }
    int32_t *copy = calloc(nr ? nr : 1, sizeof(*copy));
    if (!copy) {
        return false;
    }
    memcpy(copy, tids, nr * sizeof(*copy));
    pthread_mutex_lock(&booster->lock);
    struct target *target = &booster->targets[vgpu];
    forget(target);
    *target = (struct target){.is_known = true, .way = *way, .pidfd = pidfd, .nr_tids = nr, .tids = copy};
    pthread_mutex_unlock(&booster->lock);
    return true;
}

bool fgw_booster_set_user(struct fgw_booster *booster, uint32_t vgpu, const struct fgw_boost_way *way, uint32_t uid)
{
    if (vgpu >= FGW_MAX_VGPUS) {
        return false;
    }
    pthread_mutex_lock(&booster->lock);
    struct target *target = &booster->targets[vgpu];
    forget(target);
    *target = (struct target){.is_known = true, .way = *way, .pidfd = -1, .uid = uid};
    pthread_mutex_unlock(&booster->lock);
    return true;
}

void fgw_booster_clear(struct fgw_booster *booster, uint32_t vgpu)
{
    if (vgpu < FGW_MAX_VGPUS) {
        pthread_mutex_lock(&booster->lock);
        forget(&booster->targets[vgpu]);
        pthread_mutex_unlock(&booster->lock);
    }
}

void fgw_booster_read(struct fgw_booster *booster, uint32_t vgpu, uint64_t *nr_boosts, uint64_t *nr_refused)
{
    *nr_boosts = *nr_refused = 0;
    if (vgpu < FGW_MAX_VGPUS) {
        pthread_mutex_lock(&booster->lock);
        *nr_boosts = booster->targets[vgpu].nr_boosts;
        *nr_refused = booster->targets[vgpu].nr_refused;
        pthread_mutex_unlock(&booster->lock);
    }
}

static bool has_ended(int pidfd)
{
    struct pollfd process = {.fd = pidfd, .events = POLLIN};
    return poll(&process, 1, 0) != 0;
}

static bool belongs_to(int32_t tid, uint32_t uid)
{
    char path[32];
    struct stat status;
    snprintf(path, sizeof(path), "/proc/%d", tid);
    return tid > 0 && stat(path, &status) == 0 && status.st_uid == uid;
}

/* The thread that a hint means, 0 when it means none of this vGPU's. */
static int32_t thread_of(const struct target *target, uint32_t asker)
{
    if (target->pidfd < 0) {
        return belongs_to((int32_t)asker, target->uid) ? (int32_t)asker : 0;
    }
    if (asker == 0 || asker > target->nr_tids || has_ended(target->pidfd)) {
        return 0;
    }
    return target->tids[asker - 1];
}

/* Who asked, of the workers that it pays for: the one that waited when its vGPU got the GPU, or any that is at work. */
static uint32_t asker_of(struct fgw_control *control, uint32_t vgpu)
{
    const struct fgw_grant *grant = control->grant;
    const struct fgw_worker_set *sets[] = {&grant->waiting, &grant->users, &grant->interactive};
    for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++) {
        for (uint32_t slot = 0; slot < FGW_MAX_WORKERS; slot++) {
            if (fgw_set_has(sets[i], slot) && fgw_set_has(&grant->interactive, slot) &&
                fgw_set_has(&control->decided->vgpus[vgpu].members, slot)) {
                return atomic_load_explicit(&control->own[vgpu]->workers[slot].asker, memory_order_relaxed);
            }
        }
    }
    return 0;
}

static void begin_boost(struct fgw_booster *booster, uint32_t vgpu, uint64_t now_ns)
{
    struct target *target = &booster->targets[vgpu];
    if (!target->is_known) {
        return;
    }
    int32_t tid = thread_of(target, asker_of(booster->control, vgpu));
    if (tid == 0 || raise_thread(tid, &target->way, &target->usual) != 0) {
        target->nr_refused++;
        return;
    }
    target->boosted_tid = tid;
    target->until_ns = now_ns + booster->limit_ns;
    target->nr_boosts++;
}

/* Ends what is over, and begins for a holder that is new. Returns when to look again. */
static uint64_t look(struct fgw_booster *booster, uint64_t now_ns)
{
    struct fgw_grant_reading grant;
    fgw_control_grant_read(booster->control, &grant);
    const bool is_handed_over = grant.sequence != booster->sequence;
    booster->sequence = grant.sequence;
    uint64_t next_ns = now_ns + SLEEP_NS;
    pthread_mutex_lock(&booster->lock);
    for (uint32_t vgpu = 0; vgpu < FGW_MAX_VGPUS; vgpu++) {
        struct target *target = &booster->targets[vgpu];
        if (target->boosted_tid != 0 && (is_handed_over || now_ns >= target->until_ns)) {
            end_boost(target);
        }
    }
    if (is_handed_over && grant.holder != FGW_NOBODY &&
        fgw_vgpu_is_among(booster->control, grant.holder, &booster->control->grant->interactive)) {
        begin_boost(booster, grant.holder - 1, now_ns);
    }
    for (uint32_t vgpu = 0; vgpu < FGW_MAX_VGPUS; vgpu++) {
        const struct target *target = &booster->targets[vgpu];
        if (target->boosted_tid != 0 && target->until_ns < next_ns) {
            next_ns = target->until_ns;
        }
    }
    pthread_mutex_unlock(&booster->lock);
    return next_ns;
}

static void sleep_until(_Atomic uint32_t *bell, uint32_t seen, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};
    syscall(SYS_futex, bell, FUTEX_WAIT_BITSET, seen, &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

void fgw_booster_run(struct fgw_booster *booster)
{
    /* Before those that it boosts, if it may; who is boosted late is boosted in vain. */
    struct attributes own = {.policy = SCHED_RR, .priority = 2};
    set_attributes(0, &own);
    while (!atomic_load(&booster->is_stopping)) {
        uint32_t bell = atomic_load(&booster->control->grant->boost_bell);
        uint64_t next_ns = look(booster, fgw_clock_ns());
        const struct timespec pause = {.tv_nsec = PAUSE_NS};
        nanosleep(&pause, NULL);
        if (!atomic_load(&booster->is_stopping)) {
            sleep_until(&booster->control->grant->boost_bell, bell, next_ns);
        }
    }
    pthread_mutex_lock(&booster->lock);
    for (uint32_t vgpu = 0; vgpu < FGW_MAX_VGPUS; vgpu++) {
        end_boost(&booster->targets[vgpu]);
    }
    pthread_mutex_unlock(&booster->lock);
}

void fgw_booster_stop(struct fgw_booster *booster)
{
    atomic_store(&booster->is_stopping, true);
    atomic_fetch_add(&booster->control->grant->boost_bell, 1);
    syscall(SYS_futex, &booster->control->grant->boost_bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}
