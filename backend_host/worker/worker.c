/*
 * The worker's life: it opens the device library, takes a client, serves its ring until the client ends, and takes
 * everything down.
 *
 * The loop never sleeps in the driver; what it does while there is nothing to do is in rest.c. The client is looked
 * after in between: a guest that closes, or whose beat has stood still, ends the worker.
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
#define ROUNDS_UNWATCHED  16
#define LOOK_NS           UINT64_C(50000000)
#define SHOW_NS           UINT64_C(1000000000)
#define END_SECONDS       10 /* a device library that takes longer to let go is left behind */

struct fgv_worker *fgv_the_worker;

void fgv_log(const char *format, ...)
{
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

struct fgv_worker *fgv_worker_open(const char *library, int device, char *error, uint32_t error_bytes)
{
    struct fgv_worker *worker = calloc(1, sizeof(*worker));
    if (!worker || !fgv_handles_init(worker) || !(worker->backlog.bytes = malloc(FGV_BACKLOG_BYTES))) {
        snprintf(error, error_bytes, "no memory");
        return NULL;
    }
    worker->output = worker->daemon = -1;
    fgv_rest_init(worker);
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
    worker->daemon = assignment->daemon;
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
    if (assignment->control->is_preemptive) {
        fgv_withdraw_init(worker);
        fgv_beside_init(worker);
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

static void look_around(struct fgv_worker *worker, uint64_t now_ns)
{
    if (now_ns - worker->looked_ns > LOOK_NS) {
        look_after_client(worker, now_ns);
        show_use(worker, now_ns);
    }
}

/* A round while this worker's work is off the device. */
static void stand_by(struct fgv_worker *worker)
{
    const uint64_t now_ns = fgv_clock_ns();
    fgv_turn_poll(worker, now_ns);
    look_around(worker, now_ns);
    if (!fgv_turn_is_off(worker)) {
        fgv_rest_end(worker);
    } else if (!worker->ended) {
        fgv_rest(worker, now_ns, true);
    }
}

static void loop(struct fgv_worker *worker)
{
    uint32_t nr_hurried = 0;
    while (!worker->ended) {
        if (fgv_turn_is_off(worker)) {
            stand_by(worker);
            continue;
        }
        bool is_held_up = false;
        bool is_news = worker->backlog.head != worker->backlog.tail && fgv_serve_backlog(worker);
        bool is_record = serve_ring(worker, &is_held_up);
        is_news |= is_record;
        fgv_host_round(worker);
        if (is_record && !worker->busy && !worker->first_waiter && !worker->grantee.is_waiting &&
            worker->hosts.nr == 0 && ++nr_hurried < ROUNDS_UNWATCHED) {
            fgv_rest_end(worker);
            continue; /* nothing to watch: on to the next record without reading the clock */
        }
        nr_hurried = 0;
        uint64_t now_ns = fgv_clock_ns();
        if ((worker->busy || worker->first_waiter) && now_ns >= worker->next_poll_ns) {
            is_news |= fgv_sync_poll(worker, now_ns);
            is_news |= fgv_waiters_run(worker);
            worker->next_poll_ns = fgv_rest_next_poll_ns(worker, now_ns);
        }
        if (worker->hosts.nr != 0) {
            is_news |= fgv_host_poll(worker);
        }
        fgv_turn_poll(worker, now_ns);
        fgv_parts_poll(worker);
        look_around(worker, now_ns);
        if (is_news) {
            fgv_rest_end(worker);
        } else if (!worker->ended) {
            fgv_rest(worker, now_ns, is_held_up);
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

uint32_t fgv_capability_of(const struct fgv_worker *worker)
{
    int major = 0;
    int minor = 0;
    worker->driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, worker->device);
    worker->driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, worker->device);
    return (uint32_t)(major * 10 + minor);
}

void fgv_worker_set_inspector(struct fgv_worker *worker, fgv_inspector_fn inspector)
{
    worker->inspector = inspector;
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
