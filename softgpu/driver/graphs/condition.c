/* Words that conditional nodes look at: see condition.h. */
#include "graphs/condition.h"

#include <stdlib.h>

#include "memory/memory_map.h"
#include "work/copy.h"

struct sgp_condition {
    struct sgp_condition *next;
    uint32_t nr_references;
    const struct CUgraph_st *graph; /* NULL: it is gone */
    void *word;
    unsigned int value;
    bool assigns; /* the value, at each launch */
    bool has_node;
};

static struct sgp_condition *conditions;

CUresult sgp_condition_new(struct CUctx_st *context, const struct CUgraph_st *graph, unsigned int value,
                           unsigned int flags, struct sgp_condition **made)
{
    struct sgp_condition *condition = calloc(1, sizeof(*condition));
    CUresult result;

    if (!condition) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = sgp_memory_new(context, sizeof(value), SGP_MEMORY_MODULE, &condition->word);
    if (result) {
        free(condition);
        return result;
    }
    condition->nr_references = 1;
    condition->graph = graph;
    condition->value = value;
    condition->assigns = flags != 0;
    condition->next = conditions;
    conditions = condition;
    *made = condition;
    return CUDA_SUCCESS;
}

CUgraphConditionalHandle sgp_condition_handle(const struct sgp_condition *condition)
{
    return (uintptr_t)condition->word;
}

struct sgp_condition *sgp_condition_take(CUgraphConditionalHandle handle, const struct CUgraph_st *graph)
{
    struct sgp_condition *condition = conditions;

    while (condition && (sgp_condition_handle(condition) != handle || condition->graph != graph)) {
        condition = condition->next;
    }
    if (!condition || condition->has_node) {
        return NULL;
    }
    condition->has_node = true;
    condition->nr_references++;
    return condition;
}

void sgp_condition_keep(struct sgp_condition *condition)
{
    condition->nr_references++;
}

void sgp_condition_release(struct sgp_condition *condition)
{
    struct sgp_condition **link = &conditions;
    struct sgp_allocation *allocation;

    if (--condition->nr_references) {
        return;
    }
    while (*link != condition) {
        link = &(*link)->next;
    }
    *link = condition->next;
    allocation = sgp_memory_find((uintptr_t)condition->word);
    if (allocation && allocation->start == (uintptr_t)condition->word) { /* else it went with its context */
        sgp_memory_delete(allocation);
    }
    free(condition);
}

void sgp_condition_forget_graph(const struct CUgraph_st *graph)
{
    struct sgp_condition *condition = conditions;

    while (condition) {
        struct sgp_condition *next = condition->next;

        if (condition->graph == graph) {
            condition->graph = NULL;
            sgp_condition_release(condition);
        }
        condition = next;
    }
}

unsigned int sgp_condition_value(const struct sgp_condition *condition)
{
    return *(const volatile unsigned int *)condition->word;
}

CUresult sgp_condition_assign(const struct sgp_condition *condition, struct CUstream_st *stream)
{
    const CUDA_MEMSET_NODE_PARAMS set = {.dst = (uintptr_t)condition->word,
                                         .elementSize = sizeof(condition->value),
                                         .value = condition->value,
                                         .width = 1,
                                         .height = 1};

    return condition->assigns ? sgp_set_submit(stream, &set) : CUDA_SUCCESS;
}
