/*
 * Captures as the program begins them, asks about them and ends them. What is captured, and whether a stream takes
 * part, is the device library's knowledge; it is asked while there is a capture, and never otherwise.
 */
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "call/call.h"
#include "call/chunks.h"
#include "context/capture_rules.h"
#include "context/stream.h"
#include "cuda_api/prototypes.h"
#include "graphs/graph.h"
#include "graphs/graph_kept.h"
#include "region/client.h"

/* ---- asking ---- */

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
    CUresult result = fgv_chunk_take(&chunk);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = fgv_capture_ask(stream, chunk, reply);
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
    result = wants_nodes ? ask_with_nodes(wire, asked, &reply) : fgv_capture_ask(wire, FGV_NO_CHUNK, &reply);
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
    if (fgv_capture_is_begun(wire)) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    /* Managed variables are looked for before: what that takes would end the capture. */
    fgv_call_work_follows();
    result = fgv_capture_add(wire, mode, graph != NULL);
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
    if (phGraph) {
        *phGraph = NULL;
    }
    const bool is_into_graph = fgv_capture_is_into_graph(wire);
    const bool is_others = fgv_capture_is_others(wire);
    if (is_others) { /* which ends it, and nobody has its graph */
        fgv_capture_tell_broken(wire, fgv_thread.current);
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
    if (reply.error == CUDA_SUCCESS && phGraph) {
        *phGraph = (CUgraph)(uintptr_t)reply.graph;
    } else if (reply.error == CUDA_SUCCESS && !is_into_graph) {
        cuGraphDestroy((CUgraph)(uintptr_t)reply.graph); /* nobody asks for it, and nobody has it */
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
