/*
 * This side of the wall (wall_records.h). The process behind it is begun with a device's first launch, and again when
 * it has failed or its view is outdated; the thread that serves a launch sleeps until the kernel asks or has ended.
 *
 * A thread of its own, the keeper, begins the process and then does nothing but live: the process asked to be killed
 * when its parent thread ends (confine.c). So nobody has to send a signal, which FairGV's workers may not.
 */
#include <errno.h>
#include <semaphore.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/memory_map.h"
#include "runtime/confine.h"
#include "runtime/inside.h"
#include "runtime/wall_records.h"
#include "stream/queue.h"

/* Of each device and stand, by the thread that has them. */
static struct insider {
    pid_t process; /* 0: none */
    int device;
    int sockets[2]; /* ours; the other end, while the process is begun */
    struct sgp_view view;
    pthread_t keeper;
    sem_t is_begun, is_over;
} insiders[SGP_MAX_DEVICES][SGP_NR_STANDS];

/* How it ended. */
static int insider_end(struct insider *insider)
{
    int status = 0;
    pid_t ended;

    sem_post(&insider->is_over);
    pthread_join(insider->keeper, NULL);
    do {
        ended = waitpid(insider->process, &status, 0);
    } while (ended < 0 && errno == EINTR);
    close(insider->sockets[0]);
    insider->process = 0;
    return ended > 0 ? status : 0;
}

static void *keeper_main(void *argument)
{
    struct insider *insider = argument;
    int parent = getpid();

    sgp_queue_thread_start(); /* the process inherits the stack for its signals */
    sgp_lock();               /* what it inherits is whole, and of one time */
    insider->view = sgp_view_now();
    insider->process = fork();
    if (!insider->process) {
        sgp_inside_main(insider->sockets[1], insider->device, parent);
    }
    sgp_unlock();
    sem_post(&insider->is_begun);
    while (insider->process > 0 && sem_wait(&insider->is_over)) {
    }
    return NULL;
}

static bool insider_begin(struct insider *insider, int device)
{
    bool is_kept;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, insider->sockets)) {
        return false;
    }
    insider->device = device;
    sem_init(&insider->is_begun, 0, 0);
    sem_init(&insider->is_over, 0, 0);
    is_kept = !pthread_create(&insider->keeper, NULL, keeper_main, insider);
    while (is_kept && sem_wait(&insider->is_begun)) {
    }
    close(insider->sockets[1]);
    if (is_kept && insider->process > 0) {
        return true;
    }
    if (is_kept) {
        pthread_join(insider->keeper, NULL);
    }
    close(insider->sockets[0]);
    insider->process = 0;
    return false;
}

/* Sends the launch to a process whose view is of now. */
static bool launch_give(struct insider *insider, const struct sgp_grid *grid, int device)
{
    struct sgp_wall_launch launch = {.grid = *grid};
    uint32_t bytes = grid->kernel->parameters_bytes;
    bool is_current;
    ssize_t sent;

    sgp_lock();
    is_current = insider->process && sgp_view_catch_up(&insider->view, launch.changes, &launch.nr_changes);
    sgp_unlock();
    if (!is_current) {
        if (insider->process) {
            insider_end(insider);
        }
        launch.nr_changes = 0;
        if (!insider_begin(insider, device)) {
            return false;
        }
    }
    memcpy(launch.parameters, grid->parameters, bytes);
    do {
        sent = send(insider->sockets[0], &launch, offsetof(struct sgp_wall_launch, parameters) + bytes, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0;
}

static void answer(const struct insider *insider, struct sgp_grid *grid, const struct sgp_wall_record *record)
{
    struct sgp_wall_answer reply = {.address = 0};
    const struct sgp_allocation *allocation;

    if (record->question == SGP_WALL_ALLOCATE) {
        reply.address = (uintptr_t)sgp_services_direct.allocate(grid, record->value);
    }
    sgp_lock();
    allocation = sgp_memory_find(reply.address ? reply.address : record->value);
    reply.bytes = allocation ? allocation->mapped_bytes : 0;
    sgp_unlock();
    if (record->question == SGP_WALL_FREE && sgp_services_direct.free(grid, (void *)record->value)) {
        reply.address = record->value;
    }
    /* Who cannot be answered has ended, which the next recv sees; who does not take answers has itself to blame. */
    send(insider->sockets[0], &reply, sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void answer_place(const struct insider *insider, struct sgp_grid *grid, uint64_t value)
{
    const struct sgp_wall_answer reply = {
        .address =
            grid->run ? sgp_services_direct.place(grid, (uint32_t)value, (uint32_t)(value >> 32)) : SGP_NO_PLACE};

    send(insider->sockets[0], &reply, sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Until the launch has ended. False: the process has, or says what none of ours says. */
static bool serve(const struct insider *insider, struct sgp_grid *grid, CUresult *result)
{
    struct sgp_wall_record record;

    for (;;) {
        ssize_t got = recv(insider->sockets[0], &record, sizeof(record), 0);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < (ssize_t)offsetof(struct sgp_wall_record, text)) {
            return false;
        }
        got -= (ssize_t)offsetof(struct sgp_wall_record, text);
        switch (record.question) {
        case SGP_WALL_ENDED:
            *result = (CUresult)record.value;
            return record.value <= CUDA_ERROR_UNKNOWN;
        case SGP_WALL_PRINT:
            sgp_services_direct.print(grid, record.text, (size_t)got);
            break;
        case SGP_WALL_ALLOCATE:
        case SGP_WALL_FREE:
            answer(insider, grid, &record);
            break;
        case SGP_WALL_PLACE:
            answer_place(insider, grid, record.value);
            break;
        default:
            return false;
        }
    }
}

static CUresult run_behind(struct sgp_grid *grid)
{
    int device = grid->context->device->ordinal, status = 0;
    struct insider *insider = &insiders[device][grid->stand];
    CUresult result = CUDA_SUCCESS;
    bool is_well = launch_give(insider, grid, device) && serve(insider, grid, &result);

    if (is_well && !result) {
        return CUDA_SUCCESS;
    }
    if (insider->process) { /* a kernel that failed may have written over what the next one needs */
        status = insider_end(insider);
    }
    if (is_well) {
        return result;
    }
    sgp_log("kernel", "%s: the process that ran it ended, wait status 0x%x", grid->kernel->name, (unsigned int)status);
    return WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS)
               ? CUDA_ERROR_ILLEGAL_ADDRESS
               : CUDA_ERROR_LAUNCH_FAILED;
}

/* A process that gives up what one for kernels does, and ends. */
static bool wall_try(void)
{
    pid_t parent = getpid(), ended, trial = fork();
    int status = 0;

    if (!trial) {
        _exit(!sgp_confine(STDERR_FILENO, parent));
    }
    do {
        ended = trial < 0 ? trial : waitpid(trial, &status, 0);
    } while (trial > 0 && ended < 0 && errno == EINTR);
    return ended > 0 && WIFEXITED(status) && !WEXITSTATUS(status);
}

bool sgp_wall_is_missing(void)
{
    static enum { UNTRIED, THERE, MISSING } wall;

    if (wall == UNTRIED) {
        wall = !sgp_view_is_walled() || wall_try() ? THERE : MISSING;
    }
    return wall == MISSING;
}

CUresult sgp_launch_run(struct sgp_grid *grid)
{
    return sgp_view_is_walled() ? run_behind(grid)
                                : sgp_launch_here(grid, grid->context->device->ordinal, &sgp_services_direct);
}
