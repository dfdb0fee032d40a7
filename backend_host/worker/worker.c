/*
 * The worker's life: it opens the device library, takes a client, serves its ring until the client ends, and takes
 * everything down.
 *
 * The loop never sleeps in the driver. While there is nothing to do it spins for as long as spinning has paid lately,
 * then it parks on the ring, and, while its vGPU waits for the GPU, on that bell as well. The client is looked after in
 * between: a guest that closes, or whose beat has stood still, ends the worker, and so does the daemon's word.
 *
 * Wrong when: a call of the driver takes seconds (a large PTX image is compiled). Other threads of the same program
 * wait for it.
 */
#define _GNU_SOURCE
#include "worker.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "face.h"
#include "graph_memory.h"

#define RECORDS_PER_ROUND 64
/* Work is looked at again after this part of the time it has taken, so that its end is seen late by less than one in a
 * hundred, while the driver is left alone for most of the time. */
#define POLL_PART        128
#define ROUNDS_UNWATCHED 16
#define SPIN_NS          UINT64_C(20000)
#define SPIN_MIN_NS      UINT64_C(5000)
#define SPIN_MAX_NS      UINT64_C(200000)
#define YIELD_AFTER_NS   UINT64_C(20000)
#define YIELD_CROWDED_NS UINT64_C(3000) /* where guest, worker and the device library's threads have no core each */
#define CROWDED_CPUS     4
#define BUSY_SPIN_NS     UINT64_C(50000) /* work is short as a rule: its end is watched for this long */
#define DUE_MARGIN_NS    UINT64_C(60000) /* around the time that work should end it is watched without a nap */
#define EARLY_PART       16
#define BUSY_NAP_MIN_NS  UINT64_C(5000)
#define BUSY_NAP_MAX_NS  UINT64_C(500000)
/* Nothing arrived for so long: the end of what was submitted is worth an event. */
#define MARK_AFTER_NS UINT64_C(5000)
/* A ring that nobody rings a bell for is looked at after this part of the time that it has been empty. */
#define POLL_NAP_PART   32
#define POLL_NAP_MIN_NS UINT64_C(50000)
#define STOP_NAP_NS     UINT64_C(100000) /* a kernel that can be told to stop: who wants the GPU is seen so late */
#define POLL_NAP_MAX_NS UINT64_C(5000000)
#define BELL_WORTH_NS   UINT64_C(100000)
#define ALERT_NS        UINT64_C(500000) /* a bell means that the grant is there, or as good as there */
#define PARK_NS         UINT64_C(100000000)
#define BELL_NS         UINT64_C(2000000) /* a waiter looks after the holder this often */
#define LOOK_NS         UINT64_C(50000000)
#define SHOW_NS         UINT64_C(1000000000)
#define END_SECONDS     10 /* a device library that takes longer to let go is left behind */

struct fgv_worker *fgv_the_worker;

void fgv_log(const struct fgv_worker *worker, int level, const char *format, ...)
{
    if (level > worker->log_level) {
        return;
    }
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    dprintf(STDERR_FILENO, "fairgv worker %d: %s\n", (int)getpid(), line);
}

int fgv_worker_load(const char *library, struct fgv_driver *driver, char *error, uint32_t error_bytes)
{
    void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!opened) {
        snprintf(error, error_bytes, "cannot open the device library: %s", dlerror());
        return CUDA_ERROR_NOT_FOUND;
    }
    fgv_driver_load(driver, opened);
    if (!driver->cuInit || !driver->cuDeviceGet || !driver->cuDeviceGetCount || !driver->cuDriverGetVersion ||
        !driver->cuDeviceGetName || !driver->cuDeviceGetPCIBusId || !driver->cuDeviceTotalMem_v2 ||
        !driver->cuDeviceGetAttribute || !driver->cuDevicePrimaryCtxRetain || !driver->cuDevicePrimaryCtxRelease_v2 ||
        !driver->cuCtxCreate_v2 || !driver->cuCtxDestroy_v2 || !driver->cuCtxPopCurrent_v2 ||
        !driver->cuCtxSetCurrent || !driver->cuEventCreate || !driver->cuEventRecord || !driver->cuEventQuery ||
        !driver->cuEventDestroy_v2 || !driver->cuStreamSynchronize) {
        snprintf(error, error_bytes, "%s is no CUDA driver library: calls are missing that every driver has", library);
        return CUDA_ERROR_NOT_FOUND;
    }
    CUresult result = driver->cuInit(0);
    if (result != CUDA_SUCCESS) {
        snprintf(error, error_bytes, "%s: cuInit gives CUDA error %d", library, (int)result);
    }
    return (int)result;
}

struct fgv_worker *fgv_worker_open(const char *library, int device, int log_level, char *error, uint32_t error_bytes)
{
    struct fgv_worker *worker = calloc(1, sizeof(*worker));
    if (!worker || !fgv_handles_init(worker) || !(worker->backlog.bytes = malloc(FGV_BACKLOG_BYTES))) {
        snprintf(error, error_bytes, "no memory");
        return NULL;
    }
    worker->log_level = log_level;
    worker->output = -1;
    worker->spin_ns = SPIN_NS;
    worker->yield_after_ns = sysconf(_SC_NPROCESSORS_ONLN) > CROWDED_CPUS ? YIELD_AFTER_NS : YIELD_CROWDED_NS;
    worker->mark_interval = FGV_MARK_INTERVAL;
    fgv_host_init(worker);
    if (!fgv_output_open(worker)) {
        snprintf(error, error_bytes, "no file for what kernels print: %s", strerror(errno));
        return NULL;
    }
    if (fgv_worker_load(library, &worker->driver, error, error_bytes) != CUDA_SUCCESS) {
        return NULL;
    }
    CUresult result = worker->driver.cuDeviceGet(&worker->device, device);
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuDevicePrimaryCtxRetain(&worker->warm, worker->device);
    }
    if (result != CUDA_SUCCESS) {
        snprintf(error, error_bytes, "device %d: CUDA error %d", device, (int)result);
        return NULL;
    }
    fgv_memory_wrap(&worker->driver);
    fgv_graph_memory_wrap(&worker->driver);
    fgv_the_worker = worker;
    return worker;
}

/* Maps the region where the guest program has it, after a first look at where that is. */
static CUresult map_region(struct fgv_worker *worker, const struct fgv_assignment *assignment, char *error,
                           uint32_t error_bytes)
{
    uint64_t bytes = assignment->region_bytes;
    struct stat status;
    if (fstat(assignment->region_fd, &status) != 0 || (uint64_t)status.st_size < bytes) {
        snprintf(error, error_bytes, "the region is shorter than %llu bytes", (unsigned long long)bytes);
        return CUDA_ERROR_MAP_FAILED;
    }
    uint8_t *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, assignment->region_fd, 0);
    if (base == MAP_FAILED) {
        snprintf(error, error_bytes, "cannot map the region: %s", strerror(errno));
        return CUDA_ERROR_MAP_FAILED;
    }
    enum fgv_region_status found = fgv_region_check(base, bytes, assignment->table_hash, &worker->region);
    if (found != FGV_REGION_OK) {
        snprintf(error, error_bytes, "%s", fgv_region_status_text(found));
        munmap(base, bytes);
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    }
    worker->client = &worker->region.clients[assignment->client];
    if (!fgv_client_read_layout(&worker->region, assignment->client, &worker->layout)) {
        snprintf(error, error_bytes, "client %u: its entry does not make sense", assignment->client);
        return CUDA_ERROR_INVALID_VALUE;
    }
    void *wanted = (void *)(uintptr_t)worker->layout.address;
    void *placed =
        mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, assignment->region_fd, 0);
    if (placed != wanted) {
        snprintf(error, error_bytes, "client %u: address %p is taken in the worker", assignment->client, wanted);
        if (placed != MAP_FAILED) {
            munmap(placed, bytes);
        }
        return CUDA_ERROR_MAP_FAILED;
    }
    munmap(base, bytes);
    found = fgv_region_check(placed, bytes, assignment->table_hash, &worker->region);
    worker->client = &worker->region.clients[assignment->client];
    return found == FGV_REGION_OK ? CUDA_SUCCESS : CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
}

_Static_assert(sizeof(((struct fgv_assignment *)NULL)->guest_bells) == FGV_NR_GUEST_VECTORS * sizeof(int), "bells");

/* From here on the region's way of waking is this client's. One whose guest has no bell is served as under POLL. */
static CUresult take_bells(struct fgv_worker *worker, const struct fgv_assignment *assignment)
{
    if (worker->region.wake != FGV_WAKE_BELL) {
        return CUDA_SUCCESS;
    }
    uint32_t vector = worker->layout.bell_vector;
    if (!worker->layout.has_bell || assignment->nr_guest_bells > FGV_NR_GUEST_VECTORS ||
        vector >= assignment->nr_guest_bells) {
        worker->region.wake = FGV_WAKE_POLL;
        return CUDA_SUCCESS;
    }
    int guest = fcntl(assignment->guest_bells[vector], F_DUPFD_CLOEXEC, 3);
    worker->region.host_bell = &worker->bell;
    return guest >= 0 && fgv_host_bell_open(&worker->bell, guest, assignment->own_bell) ? CUDA_SUCCESS
                                                                                        : CUDA_ERROR_OPERATING_SYSTEM;
}

/* Tells a guest that waits for its state to change. */
static void announce_state(struct fgv_worker *worker, uint32_t from, uint32_t to)
{
    atomic_compare_exchange_strong(&worker->client->state, &from, to);
    fgv_announce(&worker->region);
    syscall(SYS_futex, &worker->client->state, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void refuse_client(struct fgv_worker *worker, CUresult result)
{
    if (worker->client) {
        atomic_store(&worker->client->refusal, (uint32_t)result);
        announce_state(worker, FGV_CLIENT_HELLO, FGV_CLIENT_REFUSED);
    }
}

int fgv_worker_attach(struct fgv_worker *worker, const struct fgv_assignment *assignment, char *error,
                      uint32_t error_bytes)
{
    if (assignment->client >= FGV_NR_CLIENTS || (size_t)assignment->slot >= FGV_MAX_WORKERS ||
        assignment->table_hash != FGV_TABLE_HASH) {
        snprintf(error, error_bytes,
                 "the worker was built for another table of calls, or was given a number out of range");
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    }
    worker->log_level = assignment->log_level;
    CUresult result = map_region(worker, assignment, error, error_bytes);
    CUdevice device = worker->device;
    if (result == CUDA_SUCCESS && (result = take_bells(worker, assignment)) != CUDA_SUCCESS) {
        snprintf(error, error_bytes, "client %u: no bell: %s", assignment->client, strerror(errno));
    }
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuDeviceGet(&device, assignment->device);
    }
    if (result == CUDA_SUCCESS && device != worker->device) {
        worker->driver.cuDevicePrimaryCtxRelease_v2(worker->device);
        worker->device = device;
        result = worker->driver.cuDevicePrimaryCtxRetain(&worker->warm, device);
    }
    if (result == CUDA_SUCCESS &&
        !fgv_grantee_attach(&worker->grantee, assignment->control, assignment->vgpu, assignment->slot)) {
        snprintf(error, error_bytes, "vGPU %u is not there", assignment->vgpu);
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS) {
        refuse_client(worker, result);
        return (int)result;
    }
    worker->slot = worker->grantee.slot;
    worker->grantee.client = worker->client;
    atomic_store(&worker->slot->client, assignment->client);
    atomic_store(&worker->slot->pid, (uint32_t)getpid());
    memcpy(worker->slot->program, worker->layout.program, sizeof(worker->slot->program));
    fgv_consumer_init(&worker->consumer, worker->region.base + worker->layout.ring.offset, worker->layout.ring_bytes,
                      worker->layout.commit_key, worker->region.wake);
    worker->consumer.bell = worker->region.host_bell;
    atomic_store(&worker->slot->state, FGV_WORKER_SERVING);
    announce_state(worker, FGV_CLIENT_HELLO, FGV_CLIENT_READY);
    return CUDA_SUCCESS;
}

/* Tells the guest how much of the last second its work was on the device. */
static void show_use(struct fgv_worker *worker, uint64_t now_ns)
{
    uint64_t passed_ns = now_ns - worker->shown_ns;
    if (passed_ns < SHOW_NS) {
        return;
    }
    uint64_t gpu_ns = atomic_load_explicit(&worker->slot->gpu_ns, memory_order_relaxed);
    uint64_t permille = worker->shown_ns == 0 ? 0 : (gpu_ns - worker->shown_gpu_ns) * 1000 / passed_ns;
    atomic_store_explicit(&worker->client->gpu_permille, permille < 1000 ? (uint32_t)permille : 1000,
                          memory_order_relaxed);
    worker->shown_ns = now_ns;
    worker->shown_gpu_ns = gpu_ns;
}

/* Whether there is still somebody to serve; looked at now and then. */
static void look_after_client(struct fgv_worker *worker, uint64_t now_ns)
{
    worker->looked_ns = now_ns;
    uint32_t state = atomic_load_explicit(&worker->client->state, memory_order_acquire);
    uint32_t order = atomic_load_explicit(&worker->slot->order, memory_order_relaxed);
    uint64_t beat = atomic_load_explicit(&worker->client->beat, memory_order_relaxed);
    if (beat != worker->beat || worker->beat_changed_ns == 0 || order == FGV_WORKER_PATIENT) {
        worker->beat = beat;
        worker->beat_changed_ns = now_ns;
    }
    if (state != FGV_CLIENT_READY) {
        worker->ended = "the client closed";
    } else if (order == FGV_WORKER_END) {
        worker->ended = "the daemon said so";
    } else if (now_ns - worker->beat_changed_ns > FGV_BEAT_LOST_NS) {
        worker->ended = "the client's beat was lost";
    }
}

/* Takes records off the ring. True when there were any; `is_held_up`: the backlog has no room for the next. */
static bool serve_ring(struct fgv_worker *worker, bool *is_held_up)
{
    for (int i = 0; i < RECORDS_PER_ROUND; i++) {
        struct fgv_consumed record;
        enum fgv_consume_status status = fgv_consumer_peek(&worker->consumer, &record);
        if (status == FGV_CONSUME_EMPTY) {
            return i != 0;
        }
        if (status == FGV_CONSUME_HOSTILE) {
            fgv_count(&worker->slot->nr_refused, 1);
            worker->ended = "the client's ring holds what no honest client writes";
            return false;
        }
        if (fgv_serve_record(worker, &record) == FGV_SERVE_LATER) {
            *is_held_up = true;
            return i != 0;
        }
        fgv_consumer_release(&worker->consumer);
    }
    return true;
}

static uint64_t bounded(uint64_t value, uint64_t low, uint64_t high)
{
    return value < low ? low : value < high ? value : high;
}

/* How long to leave the device alone while it works; 0: its next end is due. */
static uint64_t busy_nap_ns(const struct fgv_worker *worker, uint64_t now_ns, uint64_t quiet_ns)
{
    uint64_t due_ns = fgv_turn_due_ns(worker);
    if (due_ns != 0 && now_ns + DUE_MARGIN_NS < due_ns) {
        uint64_t before_ns = due_ns - DUE_MARGIN_NS - now_ns;
        uint64_t early_ns = quiet_ns / EARLY_PART; /* it may be another one than those before it */
        return bounded(before_ns < early_ns ? before_ns : early_ns, BUSY_NAP_MIN_NS, BUSY_NAP_MAX_NS);
    }
    if (due_ns != 0 && now_ns < due_ns + DUE_MARGIN_NS) {
        return 0;
    }
    return bounded(quiet_ns / POLL_PART, BUSY_NAP_MIN_NS, BUSY_NAP_MAX_NS);
}

/* Whether a record that arrives can end the sleep. A bell cannot while the sleep is on the grant's futex, and is not
 * worth what it costs the guest where the sleep is short; the guest may take its word for it back at any time. */
static bool is_kicked(const struct fgv_worker *worker, uint64_t timeout_ns, bool is_held_up)
{
    switch (worker->region.wake) {
    case FGV_WAKE_FUTEX:
        return true;
    case FGV_WAKE_BELL:
        return !is_held_up && !worker->grantee.is_waiting && timeout_ns >= BELL_WORTH_NS &&
               atomic_load_explicit(&worker->client->has_bell, memory_order_relaxed) == 1;
    default:
        return false;
    }
}

/* How long to sleep when spinning is over; 0: not now. */
static uint64_t sleep_ns(struct fgv_worker *worker, uint64_t now_ns, uint64_t quiet_ns, bool is_held_up)
{
    if (fgv_turn_may_change(worker)) {
        return 0; /* about to give the grant back */
    }
    uint64_t poll_ns = PARK_NS;
    if (!is_kicked(worker, poll_ns, is_held_up)) {
        poll_ns = bounded(quiet_ns / POLL_NAP_PART, POLL_NAP_MIN_NS, POLL_NAP_MAX_NS);
    }
    if (worker->nr_unfinished != 0 || worker->hosts.nr != 0 || worker->first_waiter || is_held_up || worker->is_gated) {
        uint64_t busy_ns = busy_nap_ns(worker, now_ns, quiet_ns);
        if (fgv_parts_can_stop(worker) && busy_ns > STOP_NAP_NS) {
            busy_ns = STOP_NAP_NS;
        }
        return busy_ns < poll_ns ? busy_ns : poll_ns;
    }
    if (worker->grantee.is_waiting) {
        return BELL_NS < poll_ns ? BELL_NS : poll_ns;
    }
    return poll_ns;
}

static void park(struct fgv_worker *worker, uint64_t timeout_ns, bool is_held_up)
{
    uint32_t bell = fgv_grant_bell(&worker->grantee);
    if (worker->grantee.is_waiting && fgv_grant_enter(&worker->grantee, fgv_clock_ns())) {
        return; /* it came before we knew the bell */
    }
    /* With a record in the ring that there is no room for, only the bell or the device can bring news. */
    const bool is_parked =
        !is_held_up && (worker->region.wake != FGV_WAKE_BELL || is_kicked(worker, timeout_ns, is_held_up));
    if (is_parked && !fgv_consumer_park_prepare(&worker->consumer)) {
        return;
    }
    if (worker->grantee.is_waiting || !is_parked) {
        worker->consumer.nr_parks++;
        void *kick = is_parked && worker->region.wake == FGV_WAKE_FUTEX ? &worker->consumer.control->parked : NULL;
        fgv_grant_sleep(&worker->grantee, bell, kick, timeout_ns);
        fgv_consumer_park_cancel(&worker->consumer);
    } else {
        fgv_consumer_park_sleep(&worker->consumer, timeout_ns);
    }
    atomic_store_explicit(&worker->slot->nr_parks, worker->consumer.nr_parks, memory_order_relaxed);
}

/* A moment of spinning. At first without the kernel's help; then whoever is ready to run on this core, the device
 * library's own threads say, goes first. */
static void pass_time(const struct fgv_worker *worker, uint64_t quiet_ns)
{
    if (quiet_ns < worker->yield_after_ns) {
        __builtin_ia32_pause();
    } else {
        sched_yield();
    }
}

/* The GPU is about to be handed over to our vGPU, which waits for it. */
static bool is_alerted(struct fgv_worker *worker, uint64_t now_ns)
{
    uint32_t bell = fgv_grant_bell(&worker->grantee);
    if (bell != worker->bell_seen) {
        worker->bell_seen = bell;
        worker->alerted_ns = now_ns;
    }
    return worker->grantee.is_waiting && now_ns - worker->alerted_ns < ALERT_NS;
}

/* One round without news: spin, or sleep. */
static void rest(struct fgv_worker *worker, uint64_t now_ns, bool is_held_up)
{
    if (worker->quiet_since_ns == 0) {
        worker->quiet_since_ns = now_ns;
    }
    uint64_t quiet_ns = now_ns - worker->quiet_since_ns;
    if (is_alerted(worker, now_ns)) {
        pass_time(worker, quiet_ns);
        return;
    }
    bool is_busy = worker->nr_unfinished != 0 || worker->first_waiter;
    if (is_busy && (quiet_ns >= MARK_AFTER_NS || worker->grantee.is_waiting || !fgv_grant_has(&worker->grantee))) {
        fgv_sync_mark_all(worker);
    }
    uint64_t spin_ns = is_busy && worker->spin_ns < BUSY_SPIN_NS ? BUSY_SPIN_NS : worker->spin_ns;
    uint64_t timeout_ns = quiet_ns < spin_ns ? 0 : sleep_ns(worker, now_ns, quiet_ns, is_held_up);
    if (timeout_ns == 0) {
        pass_time(worker, quiet_ns);
        return;
    }
    park(worker, timeout_ns, is_held_up);
}

/* The spin adapts to the gaps between what the guest sends: after a gap that spinning can bridge, it will next time,
 * and a guest that fills chunks need not pay for waking us with each; after a longer one, it is given up sooner. */
static void news(struct fgv_worker *worker)
{
    if (worker->quiet_since_ns == 0) {
        return;
    }
    uint64_t gap_ns = fgv_clock_ns() - worker->quiet_since_ns;
    uint64_t wanted_ns = gap_ns < SPIN_MAX_NS / 2 ? gap_ns * 2 : worker->spin_ns / 2;
    if (gap_ns >= SPIN_MAX_NS / 2 || wanted_ns > worker->spin_ns) {
        worker->spin_ns = bounded(wanted_ns, SPIN_MIN_NS, SPIN_MAX_NS);
    }
    worker->quiet_since_ns = 0;
    worker->next_poll_ns = 0;
}

static void loop(struct fgv_worker *worker)
{
    uint32_t nr_hurried = 0;
    while (!worker->ended) {
        bool is_held_up = false;
        bool is_news = worker->backlog.head != worker->backlog.tail && fgv_serve_backlog(worker);
        bool is_record = serve_ring(worker, &is_held_up);
        is_news |= is_record;
        fgv_host_round(worker);
        if (is_record && !worker->busy && !worker->first_waiter && !worker->grantee.is_waiting &&
            worker->hosts.nr == 0 && ++nr_hurried < ROUNDS_UNWATCHED) {
            news(worker);
            continue; /* nothing to watch: on to the next record without reading the clock */
        }
        nr_hurried = 0;
        uint64_t now_ns = fgv_clock_ns();
        if ((worker->busy || worker->first_waiter) && now_ns >= worker->next_poll_ns) {
            is_news |= fgv_sync_poll(worker, now_ns);
            is_news |= fgv_waiters_run(worker);
            worker->next_poll_ns = worker->quiet_since_ns ? now_ns + (now_ns - worker->quiet_since_ns) / POLL_PART : 0;
        }
        if (worker->hosts.nr != 0) {
            is_news |= fgv_host_poll(worker);
        }
        fgv_turn_poll(worker, now_ns);
        fgv_parts_poll(worker);
        if (now_ns - worker->looked_ns > LOOK_NS) {
            look_after_client(worker, now_ns);
            show_use(worker, now_ns);
        }
        if (is_news) {
            news(worker);
        } else if (!worker->ended) {
            rest(worker, now_ns, is_held_up);
        }
    }
}

/* The device library does not let go: whatever it still holds, the kernel takes. */
static void leave_at_once(int signal_number)
{
    (void)signal_number;
    fgv_turn_end(fgv_the_worker);
    _exit(70);
}

static void take_down(struct fgv_worker *worker)
{
    fgv_turn_end_begin(worker);
    signal(SIGALRM, leave_at_once);
    alarm(END_SECONDS);
    announce_state(worker, FGV_CLIENT_READY, FGV_CLIENT_DEAD); /* unless it closed by itself */
    fgv_parts_stop(worker);
    fgv_waiters_drop(worker);
    fgv_host_end(worker);
    fgv_sync_poll(worker, fgv_clock_ns());
    if (worker->nr_gates != 0) {
        leave_at_once(0); /* a stream waits for a value that nobody is left to write: no driver would let go of it */
    }
    for (uint32_t i = 0; i < FGV_MAX_CONTEXTS; i++) {
        if (worker->contexts[i]) {
            fgv_context_destroy(worker, worker->contexts[i]);
        }
    }
    fgv_memory_drop_context(worker, NULL);
    fgv_blobs_free(worker);
    struct fgv_handles *handles = &worker->handles;
    for (uint32_t i = 0; i <= handles->mask; i++) {
        struct fgv_handle *handle = &handles->places[i];
        if (handle->number != 0 && (handle->kind == FGV_HANDLE_KERNEL || handle->kind == FGV_HANDLE_FUNCTION)) {
            fgv_kernel_free(worker, handle->object);
        } else {
            free(handle->object); /* no stream: those went with their contexts */
        }
    }
    free(handles->places);
    free(worker->pinned.items);
    free(worker->allocated.items);
    free(worker->backlog.bytes);
    if (worker->warm) {
        worker->driver.cuDevicePrimaryCtxRelease_v2(worker->device);
    }
    fgv_turn_end(worker);
    fgv_grantee_detach(&worker->grantee);
    atomic_store(&worker->slot->state, FGV_WORKER_ENDED);
    alarm(0);
}

void fgv_worker_set_inspector(struct fgv_worker *worker, fgv_may_print_fn may_print)
{
    worker->inspector = may_print;
}

const char *fgv_worker_run(struct fgv_worker *worker)
{
    loop(worker);
    const char *ended = worker->ended;
    take_down(worker);
    fgv_the_worker = NULL;
    free(worker);
    return ended;
}
