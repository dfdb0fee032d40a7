/*
 * Captures. The worker serves all threads of the program on one thread and begins captures relaxed, so CUDA's rules
 * about threads and modes are kept here: what is potentially unsafe is refused where CUDA refuses it, and the captures
 * that forbid it become invalid.
 */
#include "capture.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "chunks.h"
#include "client.h"
#include "cuda_api/prototypes.h"
#include "graph.h"
#include "graph_update.h"
#include "stream.h"
#include "thread.h"

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

static uint64_t own_thread(void)
{
    static _Atomic uint64_t last;
    static _Thread_local uint64_t own;
    if (own == 0) {
        own = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    }
    return own;
}

static CUresult capture_add(uint64_t stream, CUstreamCaptureMode mode, bool is_into_graph)
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
        fgv_update_reshaped();
    }
    free(capture);
}

static void tell_broken(uint64_t stream, uint64_t context)
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
    tell_broken(stream, fgv_thread.current);
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
        tell_broken(stream, context);
    }
}

/* ---- asking ---- */

static CUresult ask(uint64_t stream, uint32_t chunk, struct fgv_reply_capture_info *reply)
{
    struct fgv_call call;
    struct fgv_request_capture_info *request = fgv_call_begin(&call, FGV_CALL_capture_info, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_capture_info){.stream = stream, .chunk = chunk};
    return fgv_call_wait(&call, reply, sizeof(*reply));
}

bool fgv_capture_is_active(CUstream stream)
{
    struct fgv_reply_capture_info reply;
    if (__builtin_expect(atomic_load_explicit(&fgv_nr_captures, memory_order_relaxed) == 0, 1)) {
        return false;
    }
    uint64_t wire = fgv_stream_wire(stream);
    return wire != 0 && wire != FGV_STREAM_INVALID && ask(wire, FGV_NO_CHUNK, &reply) == CUDA_SUCCESS &&
           reply.status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static bool is_plain(const CUgraphEdgeData *edges, size_t nr)
{
    static const CUgraphEdgeData plain;
    for (size_t i = 0; i < nr; i++) {
        if (memcmp(&edges[i], &plain, sizeof(plain)) != 0) {
            return false;
        }
    }
    return true;
}

/* What lies in the chunk, kept with the stream. */
static CUresult nodes_keep(struct fgv_stream *record, const uint8_t *from, uint32_t nr)
{
    if ((uint64_t)nr * (sizeof(CUgraphNode) + sizeof(CUgraphEdgeData)) > fgv_guest.chunk_bytes) {
        return CUDA_ERROR_UNKNOWN;
    }
    CUgraphNode *nodes = malloc(nr * sizeof(*nodes) + 1);
    CUgraphEdgeData *edges = malloc(nr * sizeof(*edges) + 1);
    if (!nodes || !edges) {
        free(nodes);
        free(edges);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(nodes, from, nr * sizeof(*nodes));
    memcpy(edges, from + nr * sizeof(*nodes), nr * sizeof(*edges));
    free(record->captured);
    free(record->captured_edges);
    record->captured = nodes;
    record->captured_edges = edges;
    return CUDA_SUCCESS;
}

static CUresult ask_with_nodes(uint64_t stream, struct fgv_stream *record, struct fgv_reply_capture_info *reply)
{
    uint32_t chunk;
    CUresult result = fgv_client_await();
    if (result != CUDA_SUCCESS || !fgv_chunk_take(&chunk)) {
        return result != CUDA_SUCCESS ? result : fgv_client_lost();
    }
    result = ask(stream, chunk, reply);
    if (result == CUDA_SUCCESS && reply->status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        result = nodes_keep(record, fgv_chunk_memory(chunk), reply->nr_nodes);
    }
    fgv_chunk_give(chunk);
    return result;
}

/* Fills what the three versions of the call have in common; *record: NULL when nothing is captured. */
static CUresult info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, bool wants_nodes,
                     struct fgv_stream **record, uint32_t *nr_nodes)
{
    struct fgv_reply_capture_info reply;
    *record = NULL;
    CUresult result = fgv_call_allowed();
    if (result == CUDA_SUCCESS) {
        result = fgv_stream_find(stream, record);
    }
    if (result == CUDA_SUCCESS && !status) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_stream *asked = *record;
    *record = NULL;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (atomic_load_explicit(&fgv_nr_captures, memory_order_relaxed) == 0) {
        return CUDA_SUCCESS;
    }
    uint64_t wire = fgv_stream_wire(stream);
    result = wants_nodes ? ask_with_nodes(wire, asked, &reply) : ask(wire, FGV_NO_CHUNK, &reply);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *status = (CUstreamCaptureStatus)reply.status;
    if (reply.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return CUDA_SUCCESS;
    }
    if (id) {
        *id = reply.id;
    }
    if (graph) {
        *graph = (CUgraph)(uintptr_t)reply.graph;
    }
    *record = asked;
    *nr_nodes = reply.nr_nodes;
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    struct fgv_stream *record;
    uint32_t nr;
    return info(hStream, captureStatus, NULL, NULL, false, &record, &nr);
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out)
{
    struct fgv_stream *record;
    uint32_t nr;
    return info(hStream, captureStatus_out, id_out, NULL, false, &record, &nr);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                                   CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                   const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
    struct fgv_stream *record;
    uint32_t nr;
    const bool wants_nodes = dependencies_out || edgeData_out || numDependencies_out;
    CUresult result = info(hStream, captureStatus_out, id_out, graph_out, wants_nodes, &record, &nr);
    if (result != CUDA_SUCCESS || !record || !wants_nodes) {
        return result;
    }
    const bool has_plain_edges = is_plain(record->captured_edges, nr);
    if (dependencies_out && !edgeData_out && !has_plain_edges) {
        return CUDA_ERROR_LOSSY_QUERY;
    }
    if (dependencies_out) {
        *dependencies_out = record->captured;
    }
    if (edgeData_out) {
        *edgeData_out = has_plain_edges ? NULL : record->captured_edges;
    }
    if (numDependencies_out) {
        *numDependencies_out = nr;
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
                                   CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                   size_t *numDependencies_out)
{
    return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL,
                                     numDependencies_out);
}

/* ---- beginning and ending ---- */

static CUresult begin_send(uint64_t stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
                           size_t nr)
{
    struct fgv_call call;
    struct fgv_request_capture_begin *request =
        fgv_call_begin(&call, FGV_CALL_capture_begin, sizeof(*request), fgv_edges_bytes(nr, false, edges));
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_capture_begin){
        .stream = stream, .graph = (uint64_t)(uintptr_t)graph, .nr_nodes = (uint32_t)nr, .has_edges = edges != NULL};
    fgv_edges_write(call.payload, nodes, NULL, edges, nr);
    return fgv_call_wait(&call, NULL, 0);
}

/* Whether a capture began in the stream. */
static bool is_begun(uint64_t stream)
{
    pthread_mutex_lock(&lock);
    bool found = *capture_find(stream) != NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

static CUresult begin(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, const CUgraphNode *nodes,
                      const CUgraphEdgeData *edges, size_t nr)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED || !fgv_edges_fit(nr) || (nr > 0 && !nodes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t wire = fgv_stream_wire(stream);
    if (wire == FGV_STREAM_INVALID) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (is_begun(wire)) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    result = capture_add(wire, mode, graph != NULL);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = begin_send(wire, graph, nodes, edges, nr);
    if (result != CUDA_SUCCESS) {
        fgv_capture_forget(wire);
    }
    return result;
}

CUresult cuStreamBeginCapture(CUstream hStream)
{
    return begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, NULL, 0);
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    return begin(hStream, mode, NULL, NULL, NULL, 0);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode)
{
    if (!hGraph) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return begin(hStream, mode, hGraph, dependencies, dependencyData, numDependencies);
}

/* Whether a capture began in the stream that another thread must end. */
static bool is_of_another_thread(uint64_t stream)
{
    pthread_mutex_lock(&lock);
    const struct capture *capture = *capture_find(stream);
    bool is_others = capture && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != own_thread();
    pthread_mutex_unlock(&lock);
    return is_others;
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t wire = fgv_stream_wire(hStream);
    if (wire == FGV_STREAM_INVALID) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!phGraph) {
        return is_begun(wire) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_ILLEGAL_STATE;
    }
    *phGraph = NULL;
    const bool is_others = is_of_another_thread(wire);
    if (is_others) { /* which ends it, and nobody has its graph */
        tell_broken(wire, fgv_thread.current);
    }
    struct fgv_call call;
    struct fgv_reply_capture_end reply;
    struct fgv_request_capture_end *request = fgv_call_begin(&call, FGV_CALL_capture_end, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->stream = wire;
    result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (reply.is_over != 0) {
        fgv_capture_forget(wire);
    }
    if (reply.error == CUDA_SUCCESS) {
        *phGraph = (CUgraph)(uintptr_t)reply.graph;
    } else if (reply.graph != 0) {
        fgv_graph_forget(reply.graph);
    }
    return is_others ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD : (CUresult)reply.error;
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                              const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                              unsigned int flags)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || !fgv_edges_fit(numDependencies) ||
        (numDependencies > 0 && !dependencies)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t wire = fgv_stream_wire(hStream);
    if (wire == FGV_STREAM_INVALID) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct fgv_call call;
    struct fgv_request_capture_update *request = fgv_call_begin(
        &call, FGV_CALL_capture_update, sizeof(*request), fgv_edges_bytes(numDependencies, false, dependencyData));
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_capture_update){
        .stream = wire, .nr_nodes = (uint32_t)numDependencies, .has_edges = dependencyData != NULL, .flags = flags};
    fgv_edges_write(call.payload, dependencies, NULL, dependencyData, numDependencies);
    return fgv_call_wait(&call, NULL, 0);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies,
                                           unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, NULL, numDependencies, flags);
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
