/*
 * Stream capture. Captures are relaxed for the driver, because all threads of the client's program are one thread here;
 * the guest library holds its program to CUDA's rules and says when one was broken.
 *
 * While a capture is on, work for the device is marked as soon as it is submitted: a stream may join the capture with
 * its next call, and then nothing can be recorded there any more.
 */
#include <string.h>

#include "base/count.h"
#include "calls/graph.h"
#include "calls/host_function.h"
#include "calls/staging.h"
#include "calls/state.h"
#include "client/arena.h"
#include "client/handles.h"
#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"
#include "ivshmem/response.h"
#include "track/sync.h"

/* Default streams have no object that goes with them; the guest makes an ordinary stream of each thread's own. */
#define LAST_DEFAULT_STREAM 2u

static CUresult begin(struct fgw_worker *worker, const struct fgw_request *request, CUstream stream)
{
    const struct fgv_request_capture_begin *fixed = request->fixed;
    const struct fgv_driver *driver = &worker->driver;
    if (fixed->graph == 0) {
        return driver->cuStreamBeginCapture_v2 && request->payload_bytes == 0
                   ? driver->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED)
                   : CUDA_ERROR_NOT_SUPPORTED;
    }
    struct fgw_edges edges;
    uint64_t used_bytes;
    void *graph;
    CUresult result =
        fgw_edges_read(worker, request, fixed->nr_nodes, false, fixed->has_edges != 0, &edges, &used_bytes);
    if (result == CUDA_SUCCESS) {
        result = used_bytes == request->payload_bytes ? fgw_worker_find(worker, FGV_HANDLE_GRAPH, fixed->graph, &graph)
                                                      : CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = driver->cuStreamBeginCaptureToGraph
                     ? driver->cuStreamBeginCaptureToGraph(stream, graph, edges.nodes, edges.data, fixed->nr_nodes,
                                                           CU_STREAM_CAPTURE_MODE_RELAXED)
                     : CUDA_ERROR_NOT_SUPPORTED;
    }
    fgw_edges_free(&edges);
    return result;
}

/* What the driver says of a stream; edges NULL where it knows none. */
struct info {
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph;
    const CUgraphNode *nodes;
    const CUgraphEdgeData *edges;
    size_t nr_nodes;
};

static CUresult ask(struct fgw_worker *worker, CUstream stream, struct info *info)
{
    const struct fgv_driver *driver = &worker->driver;
    *info = (struct info){.status = CU_STREAM_CAPTURE_STATUS_NONE};
    if (driver->cuStreamGetCaptureInfo_v3) {
        return driver->cuStreamGetCaptureInfo_v3(stream, &info->status, &info->id, &info->graph, &info->nodes,
                                                 &info->edges, &info->nr_nodes);
    }
    return driver->cuStreamGetCaptureInfo_v2
               ? driver->cuStreamGetCaptureInfo_v2(stream, &info->status, &info->id, &info->graph, &info->nodes,
                                                   &info->nr_nodes)
               : CUDA_ERROR_NOT_SUPPORTED;
}

/* The number of the graph that a capture makes; one that the program gave has it already. */
static CUresult number_of_graph(struct fgw_worker *worker, CUgraph graph, uint64_t *number)
{
    return fgw_graph_number(worker, FGV_HANDLE_GRAPH, graph, FGV_HANDLE_KINDS, 0, number);
}

/* Names the graph of a capture that has begun, so that whoever ends it can take the number away. 0: the driver tells
 * of no graph before the end, and nothing can name it until then. */
static CUresult name_graph(struct fgw_worker *worker, CUstream stream, uint64_t *graph)
{
    const struct fgv_driver *driver = &worker->driver;
    struct info info;
    *graph = 0;
    if (!driver->cuStreamGetCaptureInfo_v3 && !driver->cuStreamGetCaptureInfo_v2) {
        return CUDA_SUCCESS;
    }
    CUresult result = ask(worker, stream, &info);
    return result == CUDA_SUCCESS && info.graph ? number_of_graph(worker, info.graph, graph) : result;
}

/* Takes back a capture whose graph has no name. */
static void take_back(struct fgw_worker *worker, CUstream stream)
{
    CUgraph graph = NULL;
    if (worker->driver.cuStreamEndCapture && worker->driver.cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS &&
        graph && worker->driver.cuGraphDestroy) {
        worker->driver.cuGraphDestroy(graph);
    }
}

CUresult fgw_serve_capture_begin(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_capture_begin *fixed = request->fixed;
    (void)reply;
    struct fgw_stream *stream = fgw_stream_find(worker, fixed->stream);
    if (!stream) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (fixed->stream <= LAST_DEFAULT_STREAM) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    fgw_sync_mark_all(worker);
    CUresult result = begin(worker, request, stream->native);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t graph = 0;
    if (fixed->graph == 0 && (result = name_graph(worker, stream->native, &graph)) != CUDA_SUCCESS) {
        take_back(worker, stream->native);
        return result;
    }
    fgw_stream_capture_begins(worker, stream, graph);
    return CUDA_SUCCESS;
}

CUresult fgw_serve_capture_end(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_capture_end *fixed = request->fixed;
    struct fgv_reply_capture_end *answer = reply;
    struct fgw_stream *stream = fgw_stream_find(worker, fixed->stream);
    CUgraph graph = NULL;
    if (!stream || !worker->driver.cuStreamEndCapture) {
        return stream ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = worker->driver.cuStreamEndCapture(stream->native, &graph);
    answer->graph = stream->capture_graph;
    if (result == CUDA_SUCCESS && graph) {
        result = number_of_graph(worker, graph, &answer->graph);
        if (result != CUDA_SUCCESS && worker->driver.cuGraphDestroy) {
            worker->driver.cuGraphDestroy(graph); /* nobody could name it */
        }
    }
    answer->error = (uint32_t)result;
    answer->is_over = stream->is_capture_origin && !fgw_stream_is_captured(worker, stream);
    if (!answer->is_over) {
        answer->graph = 0;
        return CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS) {
        fgw_worker_unbind(worker, FGV_HANDLE_GRAPH, stream->capture_graph); /* the driver has dropped it */
    }
    fgw_stream_capture_ends(worker, stream);
    return CUDA_SUCCESS;
}

/* The nodes behind which the stream's next one would stand, into a chunk: numbers, then edge data. */
static CUresult tell_nodes(struct fgw_worker *worker, const struct info *info, uint64_t graph, uint32_t chunk)
{
    uint8_t *to = fgw_arena_chunk(worker, chunk);
    if (!to || info->nr_nodes > worker->layout.chunk_bytes / FGW_NODE_BYTES) {
        return to ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < info->nr_nodes; i++) {
        uint64_t number;
        CUgraphEdgeData plain = {0};
        CUgraphNode known = fgw_staging_known(worker, info->nodes[i]);
        CUresult result = known
                              ? fgw_graph_number(worker, FGV_HANDLE_GRAPH_NODE, known, FGV_HANDLE_GRAPH, graph, &number)
                              : CUDA_ERROR_UNKNOWN;
        if (result != CUDA_SUCCESS) {
            return result;
        }
        memcpy(to + i * sizeof(number), &number, sizeof(number));
        memcpy(to + info->nr_nodes * sizeof(number) + i * sizeof(plain), info->edges ? &info->edges[i] : &plain,
               sizeof(plain));
    }
    return CUDA_SUCCESS;
}

CUresult fgw_serve_capture_info(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_capture_info *fixed = request->fixed;
    struct fgv_reply_capture_info *answer = reply;
    void *stream;
    struct info info;
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_STREAM, fixed->stream, &stream);
    if (result == CUDA_SUCCESS) {
        result = ask(worker, stream, &info);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    answer->status = info.status;
    if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return CUDA_SUCCESS;
    }
    answer->id = info.id;
    result = number_of_graph(worker, info.graph, &answer->graph);
    if (result == CUDA_SUCCESS && fixed->chunk != FGV_NO_CHUNK) {
        answer->nr_nodes = (uint32_t)info.nr_nodes;
        result = tell_nodes(worker, &info, answer->graph, fixed->chunk);
    }
    return result;
}

CUresult fgw_capture_graph(struct fgw_worker *worker, CUstream stream, uint64_t *graph)
{
    struct info info;
    CUresult result = ask(worker, stream, &info);
    if (result == CUDA_SUCCESS && info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        result = info.status == CU_STREAM_CAPTURE_STATUS_NONE ? CUDA_ERROR_ILLEGAL_STATE
                                                              : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    return result == CUDA_SUCCESS ? number_of_graph(worker, info.graph, graph) : result;
}

CUresult fgw_serve_capture_host_function(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_capture_host_function *fixed = request->fixed;
    struct fgv_reply_capture_host_function *answer = reply;
    CUDA_HOST_NODE_PARAMS host;
    void *stream;
    uint64_t graph;
    if (fixed->kind >= FGW_HOST_NODE_KINDS) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = fgw_worker_find(worker, FGV_HANDLE_STREAM, fixed->stream, &stream);
    if (result == CUDA_SUCCESS) {
        result = fgw_capture_graph(worker, stream, &graph);
    }
    if (result != CUDA_SUCCESS || !worker->driver.cuLaunchHostFunc) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_SUPPORTED;
    }
    answer->root = fgw_graph_root(worker, FGV_HANDLE_GRAPH, graph);
    fgw_host_node(worker, fixed->function, (enum fgv_host_node)fixed->kind, &host);
    return worker->driver.cuLaunchHostFunc(stream, host.fn, host.userData);
}

static CUresult update(struct fgw_worker *worker, const struct fgv_request_capture_update *fixed, CUstream stream,
                       const struct fgw_edges *edges)
{
    const struct fgv_driver *driver = &worker->driver;
    if (driver->cuStreamUpdateCaptureDependencies_v2) {
        return driver->cuStreamUpdateCaptureDependencies_v2(stream, edges->nodes, edges->data, fixed->nr_nodes,
                                                            fixed->flags);
    }
    return driver->cuStreamUpdateCaptureDependencies && !edges->data
               ? driver->cuStreamUpdateCaptureDependencies(stream, edges->nodes, fixed->nr_nodes, fixed->flags)
               : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult fgw_serve_capture_update(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_capture_update *fixed = request->fixed;
    (void)reply;
    struct fgw_edges edges;
    uint64_t used_bytes;
    void *stream;
    CUresult result =
        fgw_edges_read(worker, request, fixed->nr_nodes, false, fixed->has_edges != 0, &edges, &used_bytes);
    if (result == CUDA_SUCCESS && used_bytes != request->payload_bytes) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = fgw_worker_find(worker, FGV_HANDLE_STREAM, fixed->stream, &stream);
    }
    if (result == CUDA_SUCCESS) {
        result = update(worker, fixed, stream, &edges);
    }
    fgw_edges_free(&edges);
    return result;
}

/* A relaxed capture minds nothing but what touches the captured stream itself: so the stream is touched. */
CUresult fgw_serve_capture_invalidate(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_capture_invalidate *fixed = request->fixed;
    (void)reply;
    struct fgw_stream *stream = fgw_stream_find(worker, fixed->stream);
    if (!stream) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (fgw_stream_is_captured(worker, stream) && worker->driver.cuStreamQuery) {
        worker->driver.cuStreamQuery(stream->native);
    }
    return CUDA_SUCCESS;
}
