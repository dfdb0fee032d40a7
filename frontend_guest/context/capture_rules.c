/* Captures that the program began, and CUDA's rules about them: see capture_rules.h. */
#include "context/capture_rules.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"
#include "cuda_api/prototypes.h"
#include "region/client.h"

struct capture {
    struct capture *next;
    uint64_t stream;  /* it began in */
    uint64_t context; /* of the stream */
    uint64_t thread;
    CUstreamCaptureMode mode;
    bool is_into_graph; /* the program's own */
    bool is_broken;     /* the host has been told */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
static _Atomic uint64_t nr_into_graphs; /* that are over */

static uint64_t own_thread(void)
{
    static _Atomic uint64_t last;
    static _Thread_local uint64_t own;
    if (own == 0) {
        own = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    }
    return own;
}

CUresult fgv_capture_add(uint64_t stream, CUstreamCaptureMode mode, bool is_into_graph)
{
    struct capture *capture = malloc(sizeof(*capture));
    if (!capture) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *capture = (struct capture){.stream = stream,
                                .context = fgv_thread.current,
                                .thread = own_thread(),
                                .mode = mode,
                                .is_into_graph = is_into_graph};
    pthread_mutex_lock(&lock);
    capture->next = captures;
    captures = capture;
    atomic_fetch_add_explicit(&fgv_nr_captures, 1, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static struct capture **capture_find(uint64_t stream)
{
    struct capture **link = &captures;
    while (*link && (*link)->stream != stream) {
        link = &(*link)->next;
    }
    return link;
}

void fgv_capture_forget(uint64_t stream)
{
    if (atomic_load_explicit(&fgv_nr_captures, memory_order_relaxed) == 0) {
        return;
    }
    pthread_mutex_lock(&lock);
    struct capture **link = capture_find(stream);
    struct capture *capture = *link;
    if (capture) {
        *link = capture->next;
        atomic_fetch_sub_explicit(&fgv_nr_captures, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
    if (capture && capture->is_into_graph) {
        atomic_fetch_add_explicit(&nr_into_graphs, 1, memory_order_relaxed);
    }
    free(capture);
}

uint64_t fgv_capture_nr_into_graphs(void)
{
    return atomic_load_explicit(&nr_into_graphs, memory_order_relaxed);
}

bool fgv_capture_is_begun(uint64_t stream)
{
    pthread_mutex_lock(&lock);
    bool found = *capture_find(stream) != NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

bool fgv_capture_is_into_graph(uint64_t stream)
{
    pthread_mutex_lock(&lock);
    const struct capture *capture = *capture_find(stream);
    const bool is_into_graph = capture && capture->is_into_graph;
    pthread_mutex_unlock(&lock);
    return is_into_graph;
}

bool fgv_capture_is_others(uint64_t stream)
{
    pthread_mutex_lock(&lock);
    const struct capture *capture = *capture_find(stream);
    bool is_others = capture && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != own_thread();
    pthread_mutex_unlock(&lock);
    return is_others;
}

void fgv_capture_tell_broken(uint64_t stream, uint64_t context)
{
    struct fgv_call call;
    struct fgv_request_capture_invalidate *request =
        fgv_call_begin_for(&call, FGV_CALL_capture_invalidate, sizeof(*request), 0, context);
    if (!request) {
        return;
    }
    request->stream = stream;
    fgv_call_wait(&call, NULL, 0);
}

CUresult fgv_capture_break(uint64_t stream)
{
    fgv_capture_tell_broken(stream, fgv_thread.current);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* cuThreadExchangeStreamCaptureMode's rules. */
static bool forbids(const struct capture *capture, CUstreamCaptureMode mode)
{
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return false;
    }
    if (capture->thread == own_thread()) {
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    }
    return mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

bool fgv_capture_forbids_this_thread(void)
{
    const CUstreamCaptureMode mode = fgv_thread.more ? fgv_thread.more->capture_mode : CU_STREAM_CAPTURE_MODE_GLOBAL;
    bool is_forbidden = false;
    for (;;) {
        uint64_t stream = 0, context = 0;
        pthread_mutex_lock(&lock);
        for (struct capture *capture = captures; capture && stream == 0; capture = capture->next) {
            if (!forbids(capture, mode)) {
                continue;
            }
            is_forbidden = true;
            if (capture->is_broken) {
                continue;
            }
            capture->is_broken = true;
            stream = capture->stream;
            context = capture->context;
        }
        pthread_mutex_unlock(&lock);
        if (stream == 0) {
            return is_forbidden;
        }
        fgv_capture_tell_broken(stream, context);
    }
}

CUresult fgv_capture_ask(uint64_t stream, uint32_t chunk, struct fgv_reply_capture_info *reply)
{
    struct fgv_call call;
    struct fgv_request_capture_info *request = fgv_call_begin(&call, FGV_CALL_capture_info, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_capture_info){.stream = stream, .chunk = chunk};
    return fgv_call_wait(&call, reply, sizeof(*reply));
}

bool fgv_capture_is_active(uint64_t stream)
{
    struct fgv_reply_capture_info reply;
    if (__builtin_expect(atomic_load_explicit(&fgv_nr_captures, memory_order_relaxed) == 0, 1)) {
        return false;
    }
    return stream != 0 && fgv_capture_ask(stream, FGV_NO_CHUNK, &reply) == CUDA_SUCCESS &&
           reply.status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUresult result = fgv_client_is_open();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_thread_more *more = fgv_thread_more();
    if (!mode) { /* an unknown mode is taken; it is none of those that forgive */
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!more) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUstreamCaptureMode before = more->capture_mode;
    more->capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
