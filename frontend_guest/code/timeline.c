#include "code/timeline.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/trace.h"
#include "call/call.h"
#include "context/stream.h"
#include "cuda_api/prototypes.h"

#define COLLECT_EVERY 64u
#define MAX_PENDING   4096u
#define MAX_BASES     16u
#define NAME_BYTES    256u
#define REBASE_MS     4000.0f
#define BASE_TRIES    8u

/* An event of a context, and when it was on the clock of the host. Others are told by their distance from it. */
struct base {
    const struct fgv_context *context;
    CUevent event;
    double at_ns;
};

struct pending {
    struct pending *next;
    struct fgv_context *context;
    uint64_t current; /* its handle */
    CUevent begun, ended;
    uint64_t stream;
    char name[NAME_BYTES];
};

bool fgv_timeline_is_on;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct base bases[MAX_BASES];
static struct pending *first, **last = &first;
static uint32_t nr_pending, nr_launches;

__attribute__((constructor(102))) static void decide(void)
{
    const char *wanted = getenv("FAIRGV_TIMELINE");
    fgv_timeline_is_on = fgv_tracing && wanted && strcmp(wanted, "1") == 0;
}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static struct base *base_of(const struct fgv_context *context)
{
    struct base *unused = NULL;
    for (uint32_t i = 0; i < MAX_BASES; i++) {
        if (bases[i].context == context) {
            return &bases[i];
        }
        unused = !unused && !bases[i].context ? &bases[i] : unused;
    }
    return unused;
}

/* In the stream, or NULL. */
static CUevent mark(CUstream stream)
{
    CUevent event = NULL;
    if (cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        return NULL;
    }
    if (cuEventRecord(event, stream) != CUDA_SUCCESS) {
        cuEventDestroy_v2(event);
        return NULL;
    }
    return event;
}

/* Waits for the stream, a few times for each context: what the device's clock says is tied to the host's by the event
 * that was heard of soonest after it was sent. */
static bool base_make(struct base *base, CUstream stream)
{
    double least_ns = 0;
    if (!base || base->event) {
        return base != NULL;
    }
    for (uint32_t i = 0; i < BASE_TRIES; i++) {
        const double sent_ns = now_ns();
        CUevent event = mark(stream);
        if (!event) {
            break;
        }
        if (cuEventSynchronize(event) != CUDA_SUCCESS) {
            cuEventDestroy_v2(event);
            break;
        }
        const double took_ns = now_ns() - sent_ns;
        const bool is_best = !base->event || took_ns < least_ns;
        CUevent other = is_best ? base->event : event;
        if (is_best) {
            *base = (struct base){.context = fgv_thread.context, .event = event, .at_ns = sent_ns + took_ns / 2};
            least_ns = took_ns;
        }
        if (other) {
            cuEventDestroy_v2(other);
        }
    }
    return base->event != NULL;
}

void fgv_timeline_begin(struct fgv_timed *timed, CUstream stream)
{
    *timed = (struct fgv_timed){.outer = fgv_counting_call};
    if (atomic_load_explicit(&fgv_nr_captures, memory_order_relaxed) != 0) {
        return;
    }
    fgv_counting_call = NULL; /* no calls of the program's */
    pthread_mutex_lock(&lock);
    if (nr_pending < MAX_PENDING && base_make(base_of(fgv_thread.context), stream)) {
        timed->begun = mark(stream);
    }
    if (!timed->begun) {
        pthread_mutex_unlock(&lock); /* else it is held until the other event is there: no other launch comes between */
    }
    fgv_counting_call = timed->outer;
}

/* Takes over both events. */
static void put(const struct fgv_timed *timed, CUevent ended, CUstream stream, const char *name)
{
    struct pending *pending = calloc(1, sizeof(*pending));
    if (!pending) {
        cuEventDestroy_v2(timed->begun);
        cuEventDestroy_v2(ended);
        return;
    }
    *pending = (struct pending){.context = fgv_thread.context,
                                .current = fgv_thread.current,
                                .begun = timed->begun,
                                .ended = ended,
                                .stream = fgv_stream_wire(stream)};
    strncpy(pending->name, name, NAME_BYTES - 1);
    *last = pending;
    last = &pending->next;
    nr_pending++;
}

/* The base moves along, so that distances stay short. Keeps `event` when it becomes the base. */
static bool rebase(struct base *base, CUevent event, float distance_ms)
{
    if (distance_ms < REBASE_MS) {
        return false;
    }
    cuEventDestroy_v2(base->event);
    base->event = event;
    base->at_ns += (double)distance_ms * 1e6;
    return true;
}

static void tell(const struct pending *pending)
{
    struct base *base = base_of(pending->context);
    float from_base_ms, took_ms;
    bool is_kept = false;
    if (base && base->event && cuEventElapsedTime(&from_base_ms, base->event, pending->begun) == CUDA_SUCCESS &&
        cuEventElapsedTime(&took_ms, pending->begun, pending->ended) == CUDA_SUCCESS) {
        fgv_trace_kernel(pending->name, pending->stream, (uint64_t)(base->at_ns + (double)from_base_ms * 1e6),
                         (uint64_t)((double)took_ms * 1e6));
        is_kept = rebase(base, pending->begun, from_base_ms);
    }
    if (!is_kept) {
        cuEventDestroy_v2(pending->begun);
    }
    cuEventDestroy_v2(pending->ended);
}

/* Each is asked for in its own context: the calling thread may have none, as at the end of a program whose other
 * threads launched. */
static void collect(void)
{
    struct fgv_context *const context = fgv_thread.context;
    const uint64_t current = fgv_thread.current;
    while (first) {
        struct pending *pending = first;
        fgv_thread.context = pending->context;
        fgv_thread.current = pending->current;
        if (cuEventQuery(pending->ended) == CUDA_ERROR_NOT_READY) {
            break;
        }
        first = pending->next;
        last = first ? last : &first;
        nr_pending--;
        tell(pending);
        free(pending);
    }
    fgv_thread.context = context;
    fgv_thread.current = current;
}

void fgv_timeline_end(struct fgv_timed *timed, CUstream stream, const char *name)
{
    if (!timed->begun) {
        return;
    }
    fgv_counting_call = NULL;
    CUevent ended = name ? mark(stream) : NULL;
    if (ended) {
        put(timed, ended, stream, name);
    } else {
        cuEventDestroy_v2(timed->begun);
    }
    if (++nr_launches % COLLECT_EVERY == 0) {
        collect();
    }
    pthread_mutex_unlock(&lock);
    fgv_counting_call = timed->outer;
}

static void drop_context(const struct fgv_context *context)
{
    struct pending **link = &first;
    while (*link) {
        struct pending *pending = *link;
        if (pending->context == context) {
            *link = pending->next;
            nr_pending--;
            free(pending);
        } else {
            link = &pending->next;
        }
    }
    last = link;
    for (uint32_t i = 0; i < MAX_BASES; i++) {
        if (bases[i].context == context) {
            bases[i] = (struct base){0};
        }
    }
}

void fgv_timeline_end_context(const struct fgv_context *context)
{
    if (!fgv_timeline_is_on) {
        return;
    }
    uint64_t *outer = fgv_counting_call;
    fgv_counting_call = NULL;
    pthread_mutex_lock(&lock);
    collect();
    drop_context(context);
    pthread_mutex_unlock(&lock);
    fgv_counting_call = outer;
}

/* Before the process ceases to be a client: region/client.c. */
__attribute__((destructor(102))) static void end(void)
{
    if (fgv_timeline_is_on) {
        pthread_mutex_lock(&lock);
        collect();
        pthread_mutex_unlock(&lock);
    }
}
