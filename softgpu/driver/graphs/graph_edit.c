/* The calls that make graphs, change them and ask about them. */
#include <string.h>

#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"
#include "graphs/graph.h"

static CUresult enter_graph(CUgraph graph)
{
    return sgp_enter_object(graph, SGP_GRAPH, CUDA_ERROR_INVALID_VALUE);
}

static CUresult enter_node(CUgraphNode node)
{
    return sgp_enter_object(node, SGP_NODE, CUDA_ERROR_INVALID_VALUE);
}

SGP_EXPORT CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    CUresult result = sgp_enter_driver();

    if (result) {
        return result;
    }
    if (!phGraph || flags) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *phGraph = sgp_graph_new();
    return sgp_leave(*phGraph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

SGP_EXPORT CUresult cuGraphDestroy(CUgraph hGraph)
{
    CUresult result = enter_graph(hGraph);

    if (result) {
        return result;
    }
    if (hGraph->owner || sgp_graph_is_captured(hGraph)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    sgp_graph_delete(hGraph);
    sgp_unlock();
    fgv_user_objects_drop((uintptr_t)hGraph);
    return CUDA_SUCCESS;
}

SGP_EXPORT CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    CUresult result = enter_graph(originalGraph);

    if (result) {
        return result;
    }
    result = phGraphClone ? sgp_graph_clone(originalGraph, phGraphClone) : CUDA_ERROR_INVALID_VALUE;
    if (!result) {
        fgv_user_objects_copy((uintptr_t)originalGraph, (uintptr_t)*phGraphClone);
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph)
{
    CUresult result = enter_graph(hClonedGraph);

    if (result) {
        return result;
    }
    if (!phNode || !sgp_object_is(hOriginalNode, SGP_NODE)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *phNode = hClonedGraph->first;
    while (*phNode && (*phNode)->origin_id != hOriginalNode->id) {
        *phNode = (*phNode)->next;
    }
    return sgp_leave(*phNode ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

SGP_EXPORT CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    CUresult result = sgp_with_argument(enter_node(hNode), type);

    if (result) {
        return result;
    }
    *type = hNode->work.type;
    return sgp_leave(CUDA_SUCCESS);
}

static void depend_not(struct CUgraphNode_st *node, const struct CUgraphNode_st *on)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < node->nr_dependencies; i++) {
        if (node->dependencies[i] != on) {
            node->dependencies[kept++] = node->dependencies[i];
        }
    }
    node->nr_dependencies = kept;
}

SGP_EXPORT CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
    struct CUgraphNode_st **link, *last = NULL;
    CUresult result = enter_node(hNode);

    if (result) {
        return result;
    }
    if (sgp_graph_is_captured(hNode->graph)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (sgp_graph_has_memory(hNode->graph)) {
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    for (link = &hNode->graph->first; *link != hNode; link = &(*link)->next) {
        last = *link;
    }
    *link = hNode->next;
    if (!hNode->next) {
        hNode->graph->last = last;
    }
    hNode->graph->nr_nodes--;
    for (struct CUgraphNode_st *node = hNode->graph->first; node; node = node->next) {
        depend_not(node, hNode);
    }
    sgp_node_delete(hNode);
    return sgp_leave(CUDA_SUCCESS);
}

static CUresult edit(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges,
                     size_t nr, bool is_removal)
{
    CUresult result = enter_graph(graph);

    if (result) {
        return result;
    }
    if (nr && (!from || !to)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!sgp_edges_are_plain(edges, nr) || (is_removal && sgp_graph_has_memory(graph))) {
        return sgp_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    for (size_t i = 0; i < nr; i++) {
        if (!sgp_object_is(from[i], SGP_NODE) || !sgp_object_is(to[i], SGP_NODE) || from[i]->graph != graph ||
            to[i]->graph != graph) {
            return sgp_leave(CUDA_ERROR_INVALID_VALUE);
        }
    }
    for (size_t i = 0; i < nr && !result; i++) {
        if (is_removal) {
            depend_not(to[i], from[i]);
        } else {
            result = sgp_node_depend(to[i], from[i]);
        }
    }
    return sgp_leave(result);
}

SGP_EXPORT CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                              const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    return edit(hGraph, from, to, edgeData, numDependencies, false);
}

SGP_EXPORT CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                           size_t numDependencies)
{
    return edit(hGraph, from, to, NULL, numDependencies, false);
}

SGP_EXPORT CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                                 const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    return edit(hGraph, from, to, edgeData, numDependencies, true);
}

SGP_EXPORT CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                              size_t numDependencies)
{
    return edit(hGraph, from, to, NULL, numDependencies, true);
}

/* ---- lists ---- */

/* What a question fills in: arrays of the program's, with room for `room` entries; without arrays it only counts. */
struct answer {
    CUgraphNode *nodes;
    CUgraphNode *ends;
    CUgraphEdgeData *edges;
    size_t room;
    size_t nr;
};

static void answer_add(struct answer *answer, CUgraphNode node, CUgraphNode end)
{
    if (answer->nodes && answer->nr < answer->room) {
        answer->nodes[answer->nr] = node;
        if (answer->ends) {
            answer->ends[answer->nr] = end;
        }
        if (answer->edges) {
            memset(&answer->edges[answer->nr], 0, sizeof(*answer->edges));
        }
    }
    answer->nr++;
}

/* CUDA's way: the number alone without arrays; with them, what fits, and places beyond the last are NULL. */
static CUresult answer_end(struct answer *answer, size_t *nr)
{
    if (!answer->nodes) {
        *nr = answer->nr;
        return sgp_leave(CUDA_SUCCESS);
    }
    for (size_t i = answer->nr; i < answer->room; i++) {
        answer->nodes[i] = NULL;
        if (answer->ends) {
            answer->ends[i] = NULL;
        }
    }
    *nr = answer->nr < answer->room ? answer->nr : answer->room;
    return sgp_leave(CUDA_SUCCESS);
}

static CUresult list_nodes(CUgraph graph, CUgraphNode *nodes, size_t *nr, bool only_roots)
{
    struct answer answer = {.nodes = nodes, .room = nr && nodes ? *nr : 0};
    CUresult result = sgp_with_argument(enter_graph(graph), nr);

    if (result) {
        return result;
    }
    for (struct CUgraphNode_st *node = graph->first; node; node = node->next) {
        if (!only_roots || !node->nr_dependencies) {
            answer_add(&answer, node, NULL);
        }
    }
    return answer_end(&answer, nr);
}

SGP_EXPORT CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    return list_nodes(hGraph, nodes, numNodes, false);
}

SGP_EXPORT CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
    return list_nodes(hGraph, rootNodes, numRootNodes, true);
}

SGP_EXPORT CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
                                       size_t *numEdges)
{
    struct answer answer = {.nodes = from, .ends = to, .edges = edgeData, .room = numEdges && from ? *numEdges : 0};
    CUresult result = enter_graph(hGraph);

    if (result) {
        return result;
    }
    if (!numEdges || !from != !to) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    for (struct CUgraphNode_st *node = hGraph->first; node; node = node->next) {
        for (uint32_t i = 0; i < node->nr_dependencies; i++) {
            answer_add(&answer, node->dependencies[i], node);
        }
    }
    return answer_end(&answer, numEdges);
}

SGP_EXPORT CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
    return cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

SGP_EXPORT CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies,
                                                  CUgraphEdgeData *edgeData, size_t *numDependencies)
{
    struct answer answer = {
        .nodes = dependencies, .edges = edgeData, .room = numDependencies && dependencies ? *numDependencies : 0};
    CUresult result = sgp_with_argument(enter_node(hNode), numDependencies);

    if (result) {
        return result;
    }
    for (uint32_t i = 0; i < hNode->nr_dependencies; i++) {
        answer_add(&answer, hNode->dependencies[i], NULL);
    }
    return answer_end(&answer, numDependencies);
}

SGP_EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies)
{
    return cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

SGP_EXPORT CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                                    CUgraphEdgeData *edgeData, size_t *numDependentNodes)
{
    struct answer answer = {.nodes = dependentNodes,
                            .edges = edgeData,
                            .room = numDependentNodes && dependentNodes ? *numDependentNodes : 0};
    CUresult result = sgp_with_argument(enter_node(hNode), numDependentNodes);

    if (result) {
        return result;
    }
    for (struct CUgraphNode_st *node = hNode->graph->first; node; node = node->next) {
        for (uint32_t i = 0; i < node->nr_dependencies; i++) {
            if (node->dependencies[i] == hNode) {
                answer_add(&answer, node, NULL);
            }
        }
    }
    return answer_end(&answer, numDependentNodes);
}

SGP_EXPORT CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                                 size_t *numDependentNodes)
{
    return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}
