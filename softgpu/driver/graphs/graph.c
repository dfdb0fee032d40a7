/*
 * Graphs, their nodes and the pieces of work that nodes are: made, copied, taken apart.
 *
 * A node keeps what it depends on; who depends on it is found by looking at all. Edges carry no data here: kernels of
 * this device have no ports but their end.
 */
#include "graphs/graph.h"

#include <stdlib.h>
#include <string.h>

#include "graphs/condition.h"
#include "graphs/graph_memory.h"

/* Room for a kernel's parameters, and pointers to each of them. */
static bool parameters_make(struct sgp_work *work)
{
    const struct sgp_kernel *kernel = work->kernel.launch.kernel;

    work->kernel.parameters = calloc(1, kernel->parameters_bytes + 16);
    work->kernel.pointers = calloc(kernel->nr_parameters + 1, sizeof(void *));
    if (!work->kernel.parameters || !work->kernel.pointers) {
        free(work->kernel.parameters);
        free(work->kernel.pointers);
        return false;
    }
    for (uint32_t i = 0; i < kernel->nr_parameters; i++) {
        work->kernel.pointers[i] = work->kernel.parameters + kernel->parameters[i].offset_bytes;
    }
    return true;
}

static void keep_objects(const struct sgp_work *work)
{
    if (work->context) {
        sgp_object_keep(work->context);
    }
    if (work->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        sgp_object_keep(work->kernel.launch.module);
    }
    if (work->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD || work->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
        sgp_object_keep(work->event);
    }
    if (sgp_is_of_memory(work->type)) {
        sgp_graph_memory_keep(work->memory);
    }
}

CUresult sgp_work_kernel(struct sgp_work *work, struct CUctx_st *context, const struct sgp_launch *launch,
                         void **parameters, void **extra)
{
    CUresult result;

    *work = (struct sgp_work){.type = CU_GRAPH_NODE_TYPE_KERNEL, .context = context, .kernel = {.launch = *launch}};
    if (!parameters_make(work)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = sgp_launch_pack(launch->kernel, parameters, extra, work->kernel.parameters);
    keep_objects(work);
    if (result) {
        sgp_work_drop(work);
    }
    return result;
}

CUresult sgp_work_copy(struct sgp_work *to, const struct sgp_work *from)
{
    CUresult result = CUDA_SUCCESS;

    *to = *from;
    if (from->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        result = sgp_graph_clone(from->child, &to->child);
    }
    if (from->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
        result = sgp_values_copy(from->values, &to->values);
    }
    if (from->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        if (!parameters_make(to)) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            memcpy(to->kernel.parameters, from->kernel.parameters, from->kernel.launch.kernel->parameters_bytes);
        }
    }
    if (!result) {
        keep_objects(to);
    }
    return result;
}

static void conditional_end(struct sgp_conditional *conditional)
{
    for (unsigned int i = 0; i < conditional->nr_bodies; i++) {
        if (conditional->bodies[i]) {
            sgp_graph_delete(conditional->bodies[i]);
        }
    }
    sgp_condition_release(conditional->condition);
    free(conditional->bodies);
    free(conditional);
}

static bool is_number_of_bodies(CUgraphConditionalNodeType type, unsigned int nr)
{
    switch (type) {
    case CU_GRAPH_COND_TYPE_IF:
        return nr == 1 || nr == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
        return nr == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
        return nr != 0;
    }
    return false;
}

CUresult sgp_work_of_condition(struct sgp_work *work, struct CUctx_st *context, const struct CUgraph_st *graph,
                               CUDA_CONDITIONAL_NODE_PARAMS *params)
{
    struct sgp_condition *condition = NULL;
    struct sgp_conditional *conditional;

    if (is_number_of_bodies(params->type, params->size)) {
        condition = sgp_condition_take(params->handle, graph);
    }
    if (!condition) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    conditional = calloc(1, sizeof(*conditional));
    if (!conditional || !(conditional->bodies = calloc(params->size, sizeof(CUgraph)))) {
        free(conditional);
        sgp_condition_release(condition);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    conditional->condition = condition;
    conditional->type = params->type;
    for (; conditional->nr_bodies < params->size; conditional->nr_bodies++) {
        conditional->bodies[conditional->nr_bodies] = sgp_graph_new();
        if (!conditional->bodies[conditional->nr_bodies]) {
            conditional_end(conditional);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    params->phGraph_out = conditional->bodies;
    *work = (struct sgp_work){.type = CU_GRAPH_NODE_TYPE_CONDITIONAL, .context = context, .conditional = conditional};
    sgp_object_keep(context);
    return CUDA_SUCCESS;
}

void sgp_work_drop(struct sgp_work *work)
{
    if (work->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        free(work->kernel.parameters);
        free(work->kernel.pointers);
        sgp_object_release(work->kernel.launch.module);
    }
    if (work->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD || work->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
        sgp_object_release(work->event);
    }
    if (work->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
        free(work->values);
    }
    if (sgp_is_of_memory(work->type) && work->memory) {
        sgp_graph_memory_release(work->memory);
    }
    if (work->type == CU_GRAPH_NODE_TYPE_GRAPH && work->child) {
        sgp_graph_delete(work->child);
    }
    if (work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && work->conditional) {
        conditional_end(work->conditional);
    }
    if (work->context) {
        sgp_object_release(work->context);
    }
    *work = (struct sgp_work){.type = CU_GRAPH_NODE_TYPE_EMPTY};
}

/* Handles of graphs and nodes are gone when the program says so; nothing in a queue refers to them. */
static void object_free(void *object)
{
    free(object);
}

struct CUgraph_st *sgp_graph_new(void)
{
    struct CUgraph_st *graph = calloc(1, sizeof(*graph));

    if (graph && !sgp_object_add(graph, SGP_GRAPH, object_free)) {
        free(graph);
        return NULL;
    }
    if (graph) {
        graph->id = sgp_new_id();
    }
    return graph;
}

void sgp_node_delete(struct CUgraphNode_st *node)
{
    sgp_work_drop(&node->work);
    free(node->dependencies);
    sgp_object_remove(node);
    sgp_object_release(node);
}

void sgp_graph_delete(struct CUgraph_st *graph)
{
    while (graph->first) {
        struct CUgraphNode_st *node = graph->first;

        graph->first = node->next;
        sgp_node_delete(node);
    }
    sgp_condition_forget_graph(graph);
    sgp_object_remove(graph);
    sgp_object_release(graph);
}

CUresult sgp_node_depend(struct CUgraphNode_st *node, struct CUgraphNode_st *on)
{
    struct CUgraphNode_st **grown;

    if (node == on || node->graph != on->graph) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (uint32_t i = 0; i < node->nr_dependencies; i++) {
        if (node->dependencies[i] == on) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    grown = realloc(node->dependencies, (node->nr_dependencies + 1) * sizeof(*grown));
    if (!grown) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->dependencies = grown;
    node->dependencies[node->nr_dependencies++] = on;
    return CUDA_SUCCESS;
}

CUresult sgp_node_add(struct CUgraph_st *graph, struct CUgraphNode_st *const *dependencies, size_t nr_dependencies,
                      struct sgp_work *work, struct CUgraphNode_st **added)
{
    struct CUgraphNode_st *node = calloc(1, sizeof(*node));
    CUresult result = CUDA_SUCCESS;

    if (!node || !sgp_object_add(node, SGP_NODE, object_free)) {
        free(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->graph = graph;
    node->id = sgp_new_id();
    node->work.type = CU_GRAPH_NODE_TYPE_EMPTY;
    for (size_t i = 0; i < nr_dependencies && !result; i++) {
        result = sgp_node_depend(node, dependencies[i]);
    }
    if (result) {
        sgp_node_delete(node);
        return result;
    }
    node->work = *work;
    if (work->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        work->child->owner = node;
    }
    for (unsigned int i = 0; work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && i < work->conditional->nr_bodies; i++) {
        work->conditional->bodies[i]->owner = node;
    }
    if (graph->last) {
        graph->last->next = node;
    } else {
        graph->first = node;
    }
    graph->last = node;
    graph->nr_nodes++;
    *added = node;
    return CUDA_SUCCESS;
}

/* A node of the clone and its dependencies; `marks` tells which node of the clone stands for which original. */
static CUresult node_clone(const struct CUgraphNode_st *original, struct CUgraph_st *clone,
                           struct CUgraphNode_st **copy)
{
    struct sgp_work work;
    CUresult result = sgp_work_copy(&work, &original->work);

    if (result) {
        return result;
    }
    result = sgp_node_add(clone, NULL, 0, &work, copy);
    if (result) {
        sgp_work_drop(&work);
    } else {
        (*copy)->origin_id = original->id;
    }
    return result;
}

CUresult sgp_graph_clone(const struct CUgraph_st *original, struct CUgraph_st **clone)
{
    if (sgp_graph_has_memory(original) || sgp_graph_has_conditions(original)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }

    struct CUgraph_st *graph = sgp_graph_new();
    struct CUgraphNode_st **copies = calloc(original->nr_nodes + 1, sizeof(*copies));
    CUresult result = graph && copies ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    uint32_t nr = 0;

    for (struct CUgraphNode_st *node = original->first; node && !result; node = node->next) {
        node->mark = nr;
        result = node_clone(node, graph, &copies[nr++]);
    }
    for (const struct CUgraphNode_st *node = original->first; node && !result; node = node->next) {
        for (uint32_t i = 0; i < node->nr_dependencies && !result; i++) {
            result = sgp_node_depend(copies[node->mark], copies[node->dependencies[i]->mark]);
        }
    }
    free(copies);
    if (result && graph) {
        sgp_graph_delete(graph);
    } else {
        *clone = graph;
    }
    return result;
}

bool sgp_graph_has_memory(const struct CUgraph_st *graph)
{
    for (const struct CUgraphNode_st *node = graph->first; node; node = node->next) {
        if (sgp_is_of_memory(node->work.type)) {
            return true;
        }
    }
    return false;
}

const struct CUgraph_st *sgp_graph_root(const struct CUgraph_st *graph)
{
    while (graph->owner) {
        graph = graph->owner->graph;
    }
    return graph;
}

bool sgp_graph_has_conditions(const struct CUgraph_st *graph)
{
    const struct CUgraphNode_st *node = graph->first;

    while (node && node->work.type != CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        node = node->next;
    }
    return node != NULL;
}

static bool is_placed_after_all(const struct CUgraphNode_st *node)
{
    for (uint32_t i = 0; i < node->nr_dependencies; i++) {
        if (!node->dependencies[i]->mark) {
            return false;
        }
    }
    return true;
}

CUresult sgp_graph_order(struct CUgraph_st *graph, struct CUgraphNode_st ***order)
{
    struct CUgraphNode_st **placed = calloc(graph->nr_nodes + 1, sizeof(*placed));
    uint32_t nr = 0, before;

    if (!placed) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (struct CUgraphNode_st *node = graph->first; node; node = node->next) {
        node->mark = 0;
    }
    do { /* nodes are added behind what they depend on, as a rule: once is enough */
        before = nr;
        for (struct CUgraphNode_st *node = graph->first; node; node = node->next) {
            if (!node->mark && is_placed_after_all(node)) {
                placed[nr++] = node;
                node->mark = nr;
            }
        }
    } while (nr != before && nr < graph->nr_nodes);
    if (nr < graph->nr_nodes) {
        free(placed);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *order = placed;
    return CUDA_SUCCESS;
}

bool sgp_edges_are_plain(const CUgraphEdgeData *edges, size_t nr)
{
    const CUgraphEdgeData plain = {0};

    for (size_t i = 0; edges && i < nr; i++) {
        if (memcmp(&edges[i], &plain, sizeof(plain))) {
            return false;
        }
    }
    return true;
}

static bool is_freed_in(const struct CUgraph_st *graph, const struct sgp_graph_memory *memory)
{
    for (const struct CUgraphNode_st *node = graph->first; node; node = node->next) {
        if (node->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE && node->work.memory == memory) {
            return true;
        }
    }
    return false;
}

CUresult sgp_work_of_memory(struct sgp_work *work, struct CUctx_st *context, const struct CUgraph_st *graph,
                            CUgraphNodeParams *params)
{
    struct sgp_graph_memory *memory;

    *work = (struct sgp_work){.type = params->type};
    if (graph->owner) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        return sgp_graph_memory_new(context, &params->alloc, &work->memory);
    }
    memory = sgp_graph_memory_find(params->free.dptr);
    if (!memory || is_freed_in(graph, memory)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    work->memory = memory;
    sgp_graph_memory_keep(memory);
    return CUDA_SUCCESS;
}
