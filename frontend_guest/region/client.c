/*
 * From cuInit to the end of the process: opening the region, waiting for the worker, noticing that nobody answers,
 * leaving.
 *
 * The end: a destructor, which runs after the atexit handlers in which the runtime unloads its modules. It tells the
 * daemon and waits for nobody. The library stays loaded until then (-z nodelete), so no thread is ever left in unmapped
 * code.
 */
#include "region/client.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "cuda_api/visible.h"
#include "cuda_api/wire.h"
#include "region/beat.h"
#include "region/find.h"

/* Spinning at one go, at most. Where guest and worker have no CPU each, it takes the time away from who answers. */
#define SPIN_NS              UINT64_C(1000000)
#define SPIN_CROWDED_CPUS    4
#define SPIN_WAKE_NS         UINT64_C(50000)
#define SPIN_POLL_NS         UINT64_C(200000)
#define SPIN_ONE_CPU_DIVISOR 10u
#define WORKER_LOST_NS       UINT64_C(10000000000) /* loading a large module keeps a worker busy for seconds */
#define READY_NAP_NS         200000
#define READY_MOST_NS        UINT64_C(120000000000) /* a worker that needs longer than this to start will never */

struct fgv_guest fgv_guest;
static _Atomic uint32_t connection_before_open;
_Atomic uint32_t *fgv_connection = &connection_before_open;

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static pid_t opened_by; /* the process that opened the region; a forked child inherits it, and by that knows */
static _Atomic uint32_t lost_result;

/* The daemon's beat when somebody last saw it change. */
static _Atomic uint64_t host_beat_seen;
static _Atomic uint64_t host_beat_seen_ns;

/* How far the worker had read the ring when somebody last saw that change, while the daemon is silent. */
static _Atomic uint64_t head_seen;
static _Atomic uint64_t head_seen_ns;

extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso_handle);
extern void *__dso_handle;

static uint64_t spin_most_ns(const struct fgv_guest *guest)
{
    const long nr_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const uint64_t crowded_ns = guest->region.wake == FGV_WAKE_POLL ? SPIN_POLL_NS : SPIN_WAKE_NS;
    return nr_cpus > SPIN_CROWDED_CPUS ? SPIN_NS : nr_cpus > 1 ? crowded_ns : crowded_ns / SPIN_ONE_CPU_DIVISOR;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void connection_set(enum fgv_connection connection)
{
    atomic_store_explicit(fgv_connection, (uint32_t)connection, memory_order_release);
}

static void connection_close_in_child(void)
{
    connection_set(FGV_CONNECTION_CLOSED);
}

/* Moves the connection to memory of its own that a child finds zeroed. */
static CUresult connection_make(void)
{
    if (fgv_connection != &connection_before_open) {
        return CUDA_SUCCESS;
    }
    void *page = mmap(NULL, FGV_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* Before Linux 4.14 only fork() itself is noticed. */
    if (madvise(page, FGV_PAGE_BYTES, MADV_WIPEONFORK) != 0 &&
        __register_atfork(NULL, NULL, connection_close_in_child, __dso_handle) != 0) {
        munmap(page, FGV_PAGE_BYTES);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fgv_connection = page;
    return CUDA_SUCCESS;
}

static CUresult devices_choose(struct fgv_guest *guest)
{
    uint8_t uuids[FGV_FACTS_MAX_DEVICES][16];
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    for (uint32_t i = 0; i < guest->facts.nr_devices; i++) {
        guest->devices[i] = i;
        memcpy(uuids[i], guest->facts.devices[i].uuid, sizeof(uuids[i]));
    }
    guest->nr_devices = guest->facts.nr_devices;
    CUresult result = CUDA_SUCCESS;
    if (list) {
        result = fgv_visible_devices(list, uuids, guest->facts.nr_devices, guest->devices, &guest->nr_devices);
    }
    if (result != CUDA_SUCCESS) {
        fgv_log_name("CUDA_VISIBLE_DEVICES: a device twice", list);
    }
    return result == CUDA_SUCCESS && guest->nr_devices == 0 ? CUDA_ERROR_NO_DEVICE : result;
}

static CUresult facts_take(struct fgv_guest *guest)
{
    if (guest->region.facts_bytes >= sizeof(guest->facts)) {
        memcpy(&guest->facts, guest->region.facts, sizeof(guest->facts));
    }
    if (guest->region.facts_bytes < sizeof(guest->facts) || guest->facts.version != FGV_FACTS_VERSION ||
        guest->facts.nr_devices > FGV_FACTS_MAX_DEVICES) {
        fgv_log_cause(
            FGV_CAUSE_DAMAGED,
            "the region does not describe devices as this library expects it: install the same FairGV release "
            "in the guest and on the host");
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    }
    return devices_choose(guest);
}

static CUresult open_locked(struct fgv_guest *guest)
{
    CUresult result = connection_make();
    if (result == CUDA_SUCCESS) {
        result = fgv_find_region(&guest->region, &guest->bells, &guest->growth);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (atomic_load_explicit(&guest->region.header->host_state, memory_order_acquire) != FGV_HOST_UP) {
        fgv_log_cause(FGV_CAUSE_HOST_DOWN,
                      "the FairGV daemon is not running on the host; start it there with 'fairgv-host start'");
        result = CUDA_ERROR_SYSTEM_NOT_READY;
    }
    if (result == CUDA_SUCCESS) {
        result = facts_take(guest);
    }
    if (result == CUDA_SUCCESS) {
        result = fgv_hello(guest);
    }
    if (result != CUDA_SUCCESS) {
        fgv_find_release(&guest->region, &guest->bells, &guest->growth);
        return result;
    }
    guest->producer.keep_waiting = fgv_client_keep_waiting;
    guest->spin_ns = spin_most_ns(guest);
    opened_by = getpid();
    if (!fgv_beat_start(guest->client)) {
        fgv_log_cause(FGV_CAUSE_SYSTEM, "cannot start the thread that keeps this program known to the host");
        atomic_store_explicit(&guest->client->state, FGV_CLIENT_CLOSING, memory_order_release);
        fgv_announce(&guest->region);
        fgv_find_release(&guest->region, &guest->bells, &guest->growth);
        opened_by = 0;
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    connection_set(FGV_CONNECTION_OPEN);
    return CUDA_SUCCESS;
}

CUresult fgv_client_open(void)
{
    pthread_mutex_lock(&opening);
    CUresult result = fgv_client_is_open();
    if (result == CUDA_ERROR_NOT_INITIALIZED && opened_by == 0) {
        result = open_locked(&fgv_guest);
    }
    pthread_mutex_unlock(&opening);
    return result;
}

CUresult fgv_client_is_open(void)
{
    /* acquire: with the release in connection_set, all that was filled before is seen */
    uint32_t connection = atomic_load_explicit(fgv_connection, memory_order_acquire);
    if (__builtin_expect(connection == FGV_CONNECTION_SERVED || connection == FGV_CONNECTION_OPEN ||
                             connection == FGV_CONNECTION_LOST,
                         1)) {
        return CUDA_SUCCESS;
    }
    if (connection == FGV_CONNECTION_ENDING) {
        return CUDA_ERROR_DEINITIALIZED;
    }
    if (opened_by != 0 && opened_by != getpid()) {
        fgv_log_cause(FGV_CAUSE_FORKED,
                      "a forked child cannot use the GPU that its parent has opened; start a new program instead");
    }
    return CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult lost_with(CUresult result)
{
    atomic_store_explicit(&lost_result, (uint32_t)result, memory_order_relaxed);
    uint32_t connection = FGV_CONNECTION_SERVED;
    /* Only from what the connection was: an end that has begun stays one. */
    if (!atomic_compare_exchange_strong_explicit(fgv_connection, &connection, FGV_CONNECTION_LOST, memory_order_release,
                                                 memory_order_relaxed)) {
        connection = FGV_CONNECTION_OPEN;
        atomic_compare_exchange_strong_explicit(fgv_connection, &connection, FGV_CONNECTION_LOST, memory_order_release,
                                                memory_order_relaxed);
    }
    return result;
}

/* True while the daemon's beat moves, or has not stood still for long. */
static bool host_beats(void)
{
    uint64_t beat = atomic_load_explicit(&fgv_guest.region.header->host_beat, memory_order_relaxed);
    uint64_t now = now_ns();
    /* acquire: with the release below, the time that belongs to this beat, or a later one */
    if (atomic_load_explicit(&host_beat_seen, memory_order_acquire) != beat ||
        atomic_load_explicit(&host_beat_seen_ns, memory_order_relaxed) == 0) {
        atomic_store_explicit(&host_beat_seen_ns, now, memory_order_relaxed);
        atomic_store_explicit(&host_beat_seen, beat, memory_order_release);
        return true;
    }
    uint64_t seen_ns = atomic_load_explicit(&host_beat_seen_ns, memory_order_relaxed);
    return now < seen_ns || now - seen_ns < FGV_HOST_LOST_NS;
}

/*
 * A worker outlives its daemon, so a daemon that is gone says nothing about it. What can be seen of the worker from
 * here is that it takes records out of the ring; where there is none, it gets one that asks for something and answers
 * nobody.
 */
static void worker_probe(void)
{
    uint64_t position;
    struct fgv_record *record = fgv_producer_reserve(&fgv_guest.producer, sizeof(struct fgv_wire_header), &position);
    if (!record) {
        return;
    }
    *(struct fgv_wire_header *)(void *)fgv_record_payload(record) =
        (struct fgv_wire_header){.call = FGV_CALL_cuMemGetInfo_v2, .context = (uint32_t)fgv_thread.current};
    fgv_producer_commit(&fgv_guest.producer, record, position);
}

static bool worker_consumes(void)
{
    const struct fgv_ring_control *control = fgv_guest.producer.control;
    uint64_t head = atomic_load_explicit(&control->head, memory_order_relaxed);
    uint64_t now = now_ns();
    if (atomic_load_explicit(&head_seen, memory_order_acquire) != head ||
        atomic_load_explicit(&head_seen_ns, memory_order_relaxed) == 0) {
        atomic_store_explicit(&head_seen_ns, now, memory_order_relaxed);
        atomic_store_explicit(&head_seen, head, memory_order_release);
        if (head == atomic_load_explicit(&control->tail, memory_order_relaxed) && fgv_thread.current != 0) {
            worker_probe();
        }
        return true;
    }
    uint64_t seen_ns = atomic_load_explicit(&head_seen_ns, memory_order_relaxed);
    return now < seen_ns || now - seen_ns < WORKER_LOST_NS;
}

bool fgv_client_keep_waiting(void *unused, uint32_t nr_rounds)
{
    (void)unused;
    (void)nr_rounds;
    if (atomic_load_explicit(&fgv_guest.client->state, memory_order_acquire) != FGV_CLIENT_READY) {
        return false;
    }
    if (host_beats()) {
        atomic_store_explicit(&head_seen_ns, 0, memory_order_relaxed);
        return true;
    }
    return worker_consumes();
}

CUresult fgv_client_lost(void)
{
    uint32_t connection = atomic_load_explicit(fgv_connection, memory_order_acquire);
    if (connection == FGV_CONNECTION_LOST) {
        return (CUresult)atomic_load_explicit(&lost_result, memory_order_relaxed);
    }
    if (connection == FGV_CONNECTION_ENDING) {
        return CUDA_ERROR_DEINITIALIZED;
    }
    const bool is_ready = atomic_load_explicit(&fgv_guest.client->state, memory_order_acquire) == FGV_CLIENT_READY;
    if (atomic_load_explicit(&fgv_guest.client->sticky_error, memory_order_relaxed) == CUDA_ERROR_LAUNCH_TIMEOUT) {
        fgv_log_cause(FGV_CAUSE_LOST,
                      "work of this program kept the GPU from others for too long: the host ended the process that "
                      "served it");
        return lost_with(CUDA_ERROR_LAUNCH_TIMEOUT);
    }
    if (is_ready) {
        fgv_log_cause(
            FGV_CAUSE_LOST,
            "the FairGV daemon on the host and the process that served this program have stopped answering; start the "
            "daemon there, then this program again");
    } else {
        fgv_log_cause(FGV_CAUSE_LOST,
                      "the process on the host that served this program has ended; start this program again");
    }
    return lost_with(CUDA_ERROR_DEVICE_UNAVAILABLE);
}

static CUresult refused(struct fgv_client *client)
{
    uint32_t refusal = atomic_load_explicit(&client->refusal, memory_order_relaxed);
    CUresult result = refusal != 0 ? (CUresult)refusal : CUDA_ERROR_UNKNOWN;
    fgv_log_cause(FGV_CAUSE_REFUSED,
                  "the host refused to serve this program (CUDA error %u); its log says why (fairgv-host status)",
                  refusal);
    return lost_with(result);
}

CUresult fgv_client_await(void)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_client *client = fgv_guest.client;
    const uint64_t begun_ns = now_ns();
    const struct timespec nap = {.tv_nsec = READY_NAP_NS};
    for (;;) {
        uint32_t connection = atomic_load_explicit(fgv_connection, memory_order_acquire);
        if (connection == FGV_CONNECTION_LOST || connection == FGV_CONNECTION_ENDING) {
            return fgv_client_lost();
        }
        /* acquire: the worker has taken the ring over before it said READY */
        uint32_t state = atomic_load_explicit(&client->state, memory_order_acquire);
        if (state == FGV_CLIENT_READY) {
            connection = FGV_CONNECTION_OPEN;
            atomic_compare_exchange_strong_explicit(fgv_connection, &connection, FGV_CONNECTION_SERVED,
                                                    memory_order_release, memory_order_relaxed);
            return CUDA_SUCCESS;
        }
        if (state == FGV_CLIENT_REFUSED) {
            return refused(client);
        }
        if (state != FGV_CLIENT_HELLO) {
            return fgv_client_lost();
        }
        if (!host_beats() || now_ns() - begun_ns > READY_MOST_NS) {
            fgv_log_cause(FGV_CAUSE_HOST_DOWN,
                          "the FairGV daemon on the host does not answer; start it there with 'fairgv-host start'");
            return lost_with(CUDA_ERROR_SYSTEM_NOT_READY);
        }
        nanosleep(&nap, NULL);
    }
}

__attribute__((destructor(101))) static void client_leave(void)
{
    uint32_t connection = atomic_load_explicit(fgv_connection, memory_order_acquire);
    if (connection == FGV_CONNECTION_CLOSED || connection == FGV_CONNECTION_ENDING) {
        return;
    }
    connection_set(FGV_CONNECTION_ENDING);
    fgv_log_counts();
    fgv_beat_stop();
    atomic_store_explicit(&fgv_guest.client->state, FGV_CLIENT_CLOSING, memory_order_release);
    fgv_announce(&fgv_guest.region);
}
