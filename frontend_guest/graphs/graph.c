/* Graphs as wholes: made, cloned, asked what is in them. Nodes' parameters are graph_node.c, launches graph_exec.c. */
#include "graphs/graph.h"

#include <string.h>

#include "call/call.h"
#include "call/chunks.h"
#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"
#include "generated/hooks.h"
#include "graphs/graph_kept.h"
#include "graphs/graph_update.h"
#include "region/client.h"

uint32_t fgv_edges_bytes(size_t nr, bool has_ends, const CUgraphEdgeData *data)
{
    return (uint32_t)(nr * sizeof(uint64_t) * (1u + has_ends + (data != NULL)));
}

uint8_t *fgv_edges_write(uint8_t *to, const CUgraphNode *nodes, const CUgraphNode *ends, const CUgraphEdgeData *data,
                         size_t nr)
{
    const void *lists[] = {nodes, ends, data};
    for (uint32_t i = 0; i < 3 && nr > 0; i++) {
        if (!lists[i]) {
            continue;
        }
        memcpy(to, lists[i], nr * sizeof(uint64_t));
        to += nr * sizeof(uint64_t);
    }
    return to;
}

/* ---- graphs ---- */

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    if (!phGraph || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgv_call call;
    struct fgv_reply_graph_create reply;
    struct fgv_request_graph_create *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_graph_create, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_graph_create){.flags = flags};
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result == CUDA_SUCCESS) {
        *phGraph = (CUgraph)(uintptr_t)reply.graph;
    }
    return result;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    if (!phGraphClone || !originalGraph) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgv_call call;
    struct fgv_reply_graph_clone reply;
    struct fgv_request_graph_clone *request = fgv_call_begin(&call, FGV_CALL_graph_clone, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->graph = fgv_handle_number(originalGraph);
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result == CUDA_SUCCESS) {
        fgv_user_objects_copy(fgv_kept_root(fgv_handle_number(originalGraph)), reply.graph);
        *phGraphClone = (CUgraph)(uintptr_t)reply.graph;
    }
    return result;
}

void fgv_after_cuGraphDestroy(CUresult result, CUgraph hGraph)
{
    (void)result;
    fgv_graph_forget(fgv_handle_number(hGraph));
}

CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph)
{
    if (!phNode) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgv_call call;
    struct fgv_reply_graph_find_clone reply;
    struct fgv_request_graph_find_clone *request =
        fgv_call_begin(&call, FGV_CALL_graph_find_clone, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_graph_find_clone){.node = fgv_handle_number(hOriginalNode),
                                                     .graph = fgv_handle_number(hClonedGraph)};
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result == CUDA_SUCCESS) {
        *phNode = (CUgraphNode)(uintptr_t)reply.node;
    }
    return result;
}

/* ---- edges ---- */

static CUresult edit(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
                     size_t nr, bool is_removal)
{
    if (nr > 0 && (!from || !to || !fgv_edges_fit(nr))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fgv_call call;
    struct fgv_request_graph_edit *request =
        fgv_call_begin(&call, FGV_CALL_graph_edit, sizeof(*request), fgv_edges_bytes(nr, true, data));
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_graph_edit){.graph = fgv_handle_number(graph),
                                               .nr_nodes = (uint32_t)nr,
                                               .has_edges = data != NULL,
                                               .is_removal = is_removal};
    fgv_edges_write(call.payload, from, to, data, nr);
    fgv_update_reshaped();
    return fgv_call_wait(&call, NULL, 0);
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t numDependencies)
{
    return edit(hGraph, from, to, NULL, numDependencies, false);
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    return edit(hGraph, from, to, edgeData, numDependencies, false);
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t numDependencies)
{
    return edit(hGraph, from, to, NULL, numDependencies, true);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    return edit(hGraph, from, to, edgeData, numDependencies, true);
}

/* ---- lists ---- */

struct list {
    enum fgv_graph_list what;
    uint64_t of;
    CUgraphNode *nodes;
    CUgraphNode *ends;
    CUgraphEdgeData *data; /* NULL: the program did not ask */
    size_t room;
};

static CUresult page_ask(const struct list *list, size_t first, uint32_t capacity, uint32_t chunk,
                         struct fgv_reply_graph_list *reply)
{
    struct fgv_call call;
    struct fgv_request_graph_list *request = fgv_call_begin(&call, FGV_CALL_graph_list, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_graph_list){
        .handle = list->of, .first = first, .what = list->what, .chunk = chunk, .capacity = capacity};
    return fgv_call_wait(&call, reply, sizeof(*reply));
}

/* One page of a list into the program's arrays. */
static CUresult page_take(const struct list *list, size_t first, uint32_t chunk, uint32_t nr)
{
    const uint8_t *from = fgv_chunk_memory(chunk);
    const size_t list_bytes = (size_t)nr * sizeof(uint64_t);
    memcpy(list->nodes + first, from, list_bytes);
    if (list->ends) {
        memcpy(list->ends + first, from + list_bytes, list_bytes);
    }
    if (list->data) {
        memcpy(list->data + first, from + 2 * list_bytes, list_bytes);
    }
    for (size_t i = 0; !list->data && i < list_bytes; i++) {
        if (from[2 * list_bytes + i] != 0) {
            return CUDA_ERROR_LOSSY_QUERY;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult pages_take(const struct list *list, size_t *nr)
{
    struct fgv_reply_graph_list reply = {.nr_all = 1};
    uint32_t chunk;
    CUresult result = fgv_chunk_take(&chunk);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const uint32_t most = fgv_guest.chunk_bytes / FGV_GRAPH_LIST_ENTRY_BYTES;
    size_t first = 0;
    while (result == CUDA_SUCCESS && first < list->room && first < reply.nr_all) {
        const uint32_t capacity = list->room - first < most ? (uint32_t)(list->room - first) : most;
        result = page_ask(list, first, capacity, chunk, &reply);
        if (result == CUDA_SUCCESS && reply.nr > capacity) {
            result = CUDA_ERROR_UNKNOWN;
        }
        if (result == CUDA_SUCCESS) {
            result = page_take(list, first, chunk, reply.nr);
        }
        first += reply.nr;
        if (reply.nr == 0) {
            break;
        }
    }
    fgv_chunk_give(chunk);
    *nr = first;
    return result;
}

/* As CUDA: without arrays the number alone; with them what fits, and places beyond the last become NULL. */
static CUresult list_ask(struct list *list, size_t *nr)
{
    struct fgv_reply_graph_list reply;
    if (list->of == 0 || !nr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!list->nodes) {
        CUresult result = page_ask(list, 0, 0, FGV_NO_CHUNK, &reply);
        if (result == CUDA_SUCCESS) {
            *nr = reply.nr_all;
        }
        return result;
    }
    list->room = *nr;
    CUresult result = pages_take(list, nr);
    for (size_t i = *nr; result == CUDA_SUCCESS && i < list->room; i++) {
        list->nodes[i] = NULL;
        if (list->ends) {
            list->ends[i] = NULL;
        }
    }
    return result;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    return list_ask(&(struct list){.what = FGV_GRAPH_LIST_NODES, .of = fgv_handle_number(hGraph), .nodes = nodes},
                    numNodes);
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
    return list_ask(&(struct list){.what = FGV_GRAPH_LIST_ROOTS, .of = fgv_handle_number(hGraph), .nodes = rootNodes},
                    numRootNodes);
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
                            size_t *numEdges)
{
    if ((!from) != (!to)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct list list = {
        .what = FGV_GRAPH_LIST_EDGES, .of = fgv_handle_number(hGraph), .nodes = from, .ends = to, .data = edgeData};
    return list_ask(&list, numEdges);
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
    return cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData,
                                       size_t *numDependencies)
{
    struct list list = {
        .what = FGV_GRAPH_LIST_DEPENDENCIES, .of = fgv_handle_number(hNode), .nodes = dependencies, .data = edgeData};
    return list_ask(&list, numDependencies);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies)
{
    return cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes, CUgraphEdgeData *edgeData,
                                         size_t *numDependentNodes)
{
    struct list list = {
        .what = FGV_GRAPH_LIST_DEPENDENTS, .of = fgv_handle_number(hNode), .nodes = dependentNodes, .data = edgeData};
    return list_ask(&list, numDependentNodes);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes, size_t *numDependentNodes)
{
    return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}

/* ---- memory that graphs allocate ---- */

static CUresult memory_ask(CUdevice device, CUgraphMem_attribute attribute, cuuint64_t *value, bool is_reset)
{
    if (!value || (unsigned)attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (device != 0) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    struct fgv_call call;
    struct fgv_reply_graph_memory reply;
    struct fgv_request_graph_memory *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_graph_memory, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_graph_memory){.attribute = attribute, .is_reset = is_reset};
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result == CUDA_SUCCESS && !is_reset) {
        *value = reply.value;
    }
    return result;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    return memory_ask(device, attr, value, false);
}

/* High watermarks alone can be set, and to 0 alone. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    if (!value || *(const cuuint64_t *)value != 0 ||
        (attr != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attr != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return memory_ask(device, attr, value, true);
}
