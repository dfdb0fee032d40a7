/*
 * Streams as queues, and the threads that empty them.
 *
 * A stream runs its commands one after another. What must wait for another stream says so as dependencies: "that stream
 * has completed its n-th command". The legacy default stream's rule is nothing but dependencies, added at submission:
 * its commands wait for all that blocking streams were given so far, and theirs wait for its.
 *
 * A stream whose first command may run is ready; an executor thread takes it, and there are as many of those as were
 * ever needed at once. A synchronous call on an idle stream runs its command by itself, in the calling thread: no
 * thread switch for a small copy.
 */
#include "stream/queue.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "base/thread.h"
#include "stream/capture.h"

#define MAX_EXECUTORS         256u
#define ALTERNATE_STACK_BYTES 65536u

static struct CUstream_st *pending; /* streams with commands, of all contexts */
static struct CUstream_st *ready_head;
static struct CUstream_st *ready_tail;
static uint32_t nr_ready;
static uint32_t nr_executors;
static uint32_t nr_idle;
static uint32_t nr_returning; /* have run a command and look for the next before they give up the lock */
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;

static bool may_run(const struct sgp_command *command)
{
    for (uint32_t i = 0; i < command->nr_dependencies; i++) {
        if (command->dependencies[i].stream->nr_completed < command->dependencies[i].sequence) {
            return false;
        }
    }
    return true;
}

static void complete_head(struct CUstream_st *stream, CUresult result)
{
    struct sgp_command *command = stream->head;

    stream->head = command->next;
    if (!stream->head) {
        stream->tail = NULL;
    }
    stream->nr_completed = command->sequence;
    if (result) {
        sgp_device_fail(stream->object.context->device, result);
    }
    for (uint32_t i = 0; i < command->nr_dependencies; i++) {
        sgp_object_release(command->dependencies[i].stream);
    }
    free(command->dependencies);
    command->finish(command);
}

static bool is_skipped(const struct CUstream_st *stream)
{
    return stream->object.context->error && !stream->head->runs_after_error;
}

static void pending_remove(struct CUstream_st *stream)
{
    struct CUstream_st **link = &pending;

    while (*link != stream) {
        link = &(*link)->next_pending;
    }
    *link = stream->next_pending;
    stream->is_pending = false;
    sgp_object_release(stream);
}

static void *executor_main(void *unused);

static bool executor_create(void)
{
    const bool is_made = sgp_thread_begin(executor_main, NULL);

    nr_executors += is_made;
    return is_made;
}

static void make_ready(struct CUstream_st *stream)
{
    stream->is_ready = true;
    stream->next_ready = NULL;
    if (ready_tail) {
        ready_tail->next_ready = stream;
    } else {
        ready_head = stream;
    }
    ready_tail = stream;
    nr_ready++;
    if (nr_ready > nr_idle + nr_returning && nr_executors < MAX_EXECUTORS) {
        executor_create();
    }
    if (nr_ready > nr_returning) {
        pthread_cond_signal(&work);
    }
}

/* Completes what needs no thread; returns whether anything completed. A stream that is left with a command that may run
 * becomes ready. */
static bool stream_advance(struct CUstream_st *stream)
{
    bool completed = false;

    while (!stream->is_running && !stream->is_ready && stream->head && may_run(stream->head)) {
        if (stream->head->run && !is_skipped(stream)) {
            make_ready(stream);
            break;
        }
        complete_head(stream, CUDA_SUCCESS);
        completed = true;
    }
    return completed;
}

/* After a completion: whatever waited for it goes on. Holds each stream while it is looked at, as completing may drop
 * the last reference. */
static void streams_advance(void)
{
    bool completed;

    do {
        completed = false;
        for (struct CUstream_st *stream = pending, *next; stream; stream = next) {
            sgp_object_keep(stream);
            completed |= stream_advance(stream);
            next = stream->next_pending;
            if (!stream->head && !stream->is_running) {
                pending_remove(stream);
            }
            sgp_object_release(stream);
        }
    } while (completed);
    sgp_notify();
}

/* With the lock, given up while the command runs, and a reference. */
static CUresult run_head(struct CUstream_st *stream)
{
    struct sgp_command *command = stream->head;
    CUresult result;

    stream->is_running = true;
    sgp_unlock();
    result = command->run(command);
    sgp_lock();
    stream->is_running = false;
    return result;
}

void sgp_queue_thread_start(void)
{
    /* Never freed: the threads that run kernels live as long as the process. */
    void *at = mmap(NULL, ALTERNATE_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t alternate = {.ss_sp = at, .ss_size = ALTERNATE_STACK_BYTES};

    if (at != MAP_FAILED) {
        sigaltstack(&alternate, NULL);
    }
    prctl(PR_SET_TIMERSLACK, 1); /* kernels nap for microseconds */
}

static void *executor_main(void *unused)
{
    (void)unused;
    sgp_queue_thread_start();
    sgp_lock();
    for (;;) {
        struct CUstream_st *stream = ready_head;
        CUresult result;

        if (!stream) {
            nr_idle++;
            pthread_cond_wait(&work, &sgp_driver.lock);
            nr_idle--;
            continue;
        }
        ready_head = stream->next_ready;
        if (!ready_head) {
            ready_tail = NULL;
        }
        nr_ready--;
        stream->is_ready = false;
        sgp_object_keep(stream);
        result = is_skipped(stream) ? CUDA_SUCCESS : run_head(stream);
        nr_returning++;
        complete_head(stream, result);
        streams_advance();
        nr_returning--;
        sgp_object_release(stream);
    }
    return NULL;
}

bool sgp_queue_start(void)
{
    return nr_executors || executor_create();
}

CUresult sgp_queue_depend(struct sgp_command *command, struct CUstream_st *stream, uint64_t sequence)
{
    struct sgp_dependency *grown;

    if (stream->nr_completed >= sequence) {
        return CUDA_SUCCESS;
    }
    grown = realloc(command->dependencies, (command->nr_dependencies + 1) * sizeof(*grown));
    if (!grown) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    command->dependencies = grown;
    grown[command->nr_dependencies++] = (struct sgp_dependency){.stream = stream, .sequence = sequence};
    sgp_object_keep(stream);
    return CUDA_SUCCESS;
}

static CUresult depend_on_legacy_order(struct CUstream_st *stream, struct sgp_command *command)
{
    struct CUctx_st *context = stream->object.context;
    CUresult result = CUDA_SUCCESS;

    if (stream != context->legacy) {
        return stream->is_blocking ? sgp_queue_depend(command, context->legacy, context->legacy->nr_submitted)
                                   : CUDA_SUCCESS;
    }
    /* Destroyed streams are no longer in the context's list, their last commands still count: so the pending ones. */
    for (struct CUstream_st *other = pending; other && !result; other = other->next_pending) {
        if (other->object.context == context && other != stream && other->is_blocking) {
            result = sgp_queue_depend(command, other, other->nr_submitted);
        }
    }
    return result;
}

static CUresult append(struct CUstream_st *stream, struct sgp_command *command)
{
    CUresult result = sgp_capture_check(stream);

    if (!result) {
        result = depend_on_legacy_order(stream, command);
    }
    if (result) {
        for (uint32_t i = 0; i < command->nr_dependencies; i++) {
            sgp_object_release(command->dependencies[i].stream);
        }
        free(command->dependencies);
        command->finish(command);
        return result;
    }
    command->sequence = ++stream->nr_submitted;
    command->next = NULL;
    if (stream->tail) {
        stream->tail->next = command;
    } else {
        stream->head = command;
    }
    stream->tail = command;
    if (!stream->is_pending) {
        stream->is_pending = true;
        sgp_object_keep(stream);
        stream->next_pending = pending;
        pending = stream;
    }
    return CUDA_SUCCESS;
}

CUresult sgp_queue_submit(struct CUstream_st *stream, struct sgp_command *command, uint64_t *sequence)
{
    CUresult result;

    sgp_object_keep(stream);
    result = append(stream, command);
    if (!result) {
        if (sequence) {
            *sequence = stream->nr_submitted;
        }
        if (stream_advance(stream)) {
            streams_advance();
        }
    }
    sgp_object_release(stream);
    return result;
}

CUresult sgp_queue_submit_and_wait(struct CUstream_st *stream, struct sgp_command *command)
{
    CUresult result;
    uint64_t sequence;

    sgp_object_keep(stream);
    result = append(stream, command);
    sequence = stream->nr_submitted;
    if (!result) {
        if (stream->head == command && !stream->is_running && may_run(command) && command->run && !is_skipped(stream)) {
            complete_head(stream, run_head(stream));
            streams_advance();
        } else if (stream_advance(stream)) {
            streams_advance();
        }
        sgp_queue_wait(stream, sequence);
        result = stream->object.context->error;
    }
    sgp_object_release(stream);
    return result;
}

void sgp_queue_wait(struct CUstream_st *stream, uint64_t sequence)
{
    sgp_object_keep(stream);
    while (stream->nr_completed < sequence) {
        sgp_wait();
    }
    sgp_object_release(stream);
}

void sgp_queue_drain(struct CUctx_st *context)
{
    struct CUstream_st *stream = pending;

    while (stream) {
        if (stream->object.context == context && !sgp_queue_is_idle(stream)) {
            sgp_queue_wait(stream, stream->nr_submitted);
            stream = pending; /* the list changed meanwhile */
        } else {
            stream = stream->next_pending;
        }
    }
}

void sgp_queue_rest(void)
{
    struct CUstream_st *stream = pending;

    while (stream) {
        if (stream->is_running && !stream->head->uses_no_memory) {
            sgp_queue_wait(stream, stream->head->sequence);
            stream = pending; /* the list changed meanwhile */
        } else {
            stream = stream->next_pending;
        }
    }
}

bool sgp_queue_is_empty(void)
{
    return !pending;
}

bool sgp_queue_is_idle(const struct CUstream_st *stream)
{
    return stream->nr_completed == stream->nr_submitted;
}

CUresult sgp_command_in_order(struct sgp_command *command)
{
    (void)command;
    return CUDA_SUCCESS;
}

void sgp_command_free(struct sgp_command *command)
{
    free(command);
}
