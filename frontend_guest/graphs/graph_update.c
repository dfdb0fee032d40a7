/* What is known of updates that went well: see graph_update.h. */
#include "graphs/graph_update.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"
#include "call/call.h"
#include "context/capture_rules.h"
#include "cuda_api/copy_calls.h"
#include "cuda_api/prototypes.h"
#include "generated/hooks.h"
#include "memory/memory.h"
#include "memory/ranges.h"

#define NR_BUCKETS 1024u

struct update {
    struct update *next;
    uint64_t exec, node, root;
    uint64_t child;   /* of a child graph node: each that fitted is known for itself, since programs alternate */
    uint64_t context; /* that was current */
    uint64_t shape;   /* shapes() then */
    bool has_params;  /* else it was only enabled or disabled */
    struct fgv_staging staging; /* of a copy */
    CUgraphNodeParams params;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct update *buckets[NR_BUCKETS];
static _Atomic uint64_t nr_shapes;

/* Counts what may have changed some graph's shape. */
static uint64_t shapes(void)
{
    return atomic_load_explicit(&nr_shapes, memory_order_relaxed) + fgv_capture_nr_into_graphs();
}

static struct update **bucket_of(uint64_t node)
{
    return &buckets[node % NR_BUCKETS];
}

static uint64_t child_of(const CUgraphNodeParams *params)
{
    return params->type == CU_GRAPH_NODE_TYPE_GRAPH ? (uint64_t)(uintptr_t)params->graph.graph : 0;
}

/* Under the lock. */
static struct update *find(uint64_t exec, uint64_t node, uint64_t child)
{
    struct update *update = *bucket_of(node);
    while (update && (update->node != node || update->exec != exec || update->child != child)) {
        update = update->next;
    }
    return update;
}

static struct update *find_or_add(uint64_t exec, uint64_t node, uint64_t child)
{
    struct update *update = find(exec, node, child);
    if (!update && (update = calloc(1, sizeof(*update)))) {
        update->exec = exec;
        update->node = node;
        update->child = child;
        update->next = *bucket_of(node);
        *bucket_of(node) = update;
    }
    return update;
}

/* ---- what the driver could refuse ---- */

static bool is_same_kernel(const CUDA_KERNEL_NODE_PARAMS *was, const CUDA_KERNEL_NODE_PARAMS *is)
{
    return is->func == was->func && is->ctx == was->ctx && is->gridDimX == was->gridDimX &&
           is->gridDimY == was->gridDimY && is->gridDimZ == was->gridDimZ && is->blockDimX == was->blockDimX &&
           is->blockDimY == was->blockDimY && is->blockDimZ == was->blockDimZ &&
           is->sharedMemBytes == was->sharedMemBytes;
}

/* Whether memory at `is` may stand in for memory at `was`: of the same kind, and of the same context. */
static bool is_like(uint64_t was, uint64_t is)
{
    struct fgv_range was_in, is_in;
    return is == was || (fgv_memory_find(was, &was_in) && fgv_memory_find(is, &is_in) && was_in.kind == is_in.kind &&
                         was_in.context_handle == is_in.context_handle);
}

/* One end of a copy. */
struct side {
    CUmemorytype type;
    uint64_t address; /* of an array its number: another array is not like it */
    size_t x, y, z, pitch, height;
};

static struct side side_of(const struct fgv_copy_side *side)
{
    const uint64_t address = side->type == CU_MEMORYTYPE_HOST    ? side->host
                             : side->type == CU_MEMORYTYPE_ARRAY ? fgv_handle_number(side->array)
                                                                 : side->device;
    return (struct side){side->type, address, side->x_bytes, side->y, side->z, side->pitch_bytes, side->height};
}

static struct side source_of(const CUDA_MEMCPY3D *copy)
{
    const struct fgv_copy_side side = fgv_copy_source(copy);
    return side_of(&side);
}

static struct side destination_of(const CUDA_MEMCPY3D *copy)
{
    const struct fgv_copy_side side = fgv_copy_destination(copy);
    return side_of(&side);
}

static bool is_same_side(const struct side *was, const struct side *is, const CUDA_MEMCPY3D *copy)
{
    return is->type == was->type && is->x == was->x && is->y == was->y && is->z == was->z && is->pitch == was->pitch &&
           is->height == was->height && is_like(was->address, is->address) &&
           (is->address == was->address ||
            (copy->Depth == 1 && is->z == 0 &&
             fgv_memory_has(is->address + is->y * is->pitch + is->x, 1, copy->WidthInBytes, copy->Height, is->pitch)));
}

static bool is_same_copy(const CUDA_MEMCPY_NODE_PARAMS *was, const CUDA_MEMCPY_NODE_PARAMS *is)
{
    const struct side sources[] = {source_of(&was->copyParams), source_of(&is->copyParams)};
    const struct side destinations[] = {destination_of(&was->copyParams), destination_of(&is->copyParams)};
    return is->copyCtx == was->copyCtx && is->copyParams.WidthInBytes == was->copyParams.WidthInBytes &&
           is->copyParams.Height == was->copyParams.Height && is->copyParams.Depth == was->copyParams.Depth &&
           is_same_side(&sources[0], &sources[1], &is->copyParams) &&
           is_same_side(&destinations[0], &destinations[1], &is->copyParams);
}

static bool is_same_set(const CUDA_MEMSET_NODE_PARAMS_v2 *was, const CUDA_MEMSET_NODE_PARAMS_v2 *is)
{
    return is->ctx == was->ctx && is->elementSize == was->elementSize && is->width == was->width &&
           is->height == was->height && is->pitch == was->pitch &&
           (is->elementSize >= sizeof(is->value) || is->value >> 8 * is->elementSize == 0) &&
           is_like(was->dst, is->dst) &&
           (is->dst == was->dst || fgv_memory_has(is->dst, is->elementSize, is->width, is->height, is->pitch));
}

static bool is_same(const struct update *was, const CUgraphNodeParams *is)
{
    if (!was->has_params || fgv_staging_is_any(&was->staging) || is->type != was->params.type ||
        was->context != fgv_thread.current) {
        return false;
    }
    switch (is->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return is_same_kernel(&was->params.kernel, &is->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return is_same_copy(&was->params.memcpy, &is->memcpy);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return is_same_set(&was->params.memset, &is->memset);
    case CU_GRAPH_NODE_TYPE_HOST:
        return true;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return is->graph.ownership == was->params.graph.ownership && was->shape == shapes();
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return is->eventWait.event == was->params.eventWait.event;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return is->eventRecord.event == was->params.eventRecord.event;
    default:
        return false;
    }
}

bool fgv_update_is_sound(uint64_t exec, uint64_t node, const CUgraphNodeParams *params)
{
    pthread_mutex_lock(&lock);
    const struct update *update = find(exec, node, child_of(params));
    const bool is_known = update != NULL;
    const struct update was = is_known ? *update : (struct update){0};
    pthread_mutex_unlock(&lock);
    return is_known && is_same(&was, params);
}

bool fgv_update_copy(uint64_t exec, uint64_t node, CUgraphNodeParams *params, struct fgv_staging *staging)
{
    pthread_mutex_lock(&lock);
    const struct update *update = find(exec, node, 0);
    const bool is_known = update && update->has_params && update->params.type == CU_GRAPH_NODE_TYPE_MEMCPY;
    if (is_known) {
        *params = update->params;
        *staging = update->staging;
    }
    pthread_mutex_unlock(&lock);
    return is_known;
}

void fgv_update_remember(uint64_t exec, uint64_t node, uint64_t root, const CUgraphNodeParams *params,
                         const struct fgv_staging *staging)
{
    pthread_mutex_lock(&lock);
    struct update *update = find_or_add(exec, node, child_of(params));
    if (update) {
        update->root = root;
        update->context = fgv_thread.current;
        update->shape = shapes();
        update->has_params = true;
        update->staging = *staging;
        update->params = *params;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- and what is over ---- */

/* root 0: nobody said where the node is. */
static bool is_of_graph(const struct update *update, uint64_t graph)
{
    return update->root == graph || update->root == 0 || update->child == graph;
}

static void forget(const uint64_t *exec, const uint64_t *node, const uint64_t *root)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < NR_BUCKETS; i++) {
        struct update **link = &buckets[i];
        while (*link) {
            struct update *update = *link;
            if ((exec && update->exec == *exec) || (node && update->node == *node) ||
                (root && is_of_graph(update, *root))) {
                *link = update->next;
                free(update);
            } else {
                link = &update->next;
            }
        }
    }
    pthread_mutex_unlock(&lock);
}

void fgv_update_forget_exec(uint64_t exec)
{
    forget(&exec, NULL, NULL);
}

void fgv_update_forget_node(uint64_t node)
{
    forget(NULL, &node, NULL);
}

void fgv_update_forget_graph(uint64_t root)
{
    forget(NULL, NULL, &root);
}

void fgv_update_reshaped(void)
{
    atomic_fetch_add_explicit(&nr_shapes, 1, memory_order_relaxed);
}

/* Attributes of a kernel node are part of what must fit. */
void fgv_after_cuGraphKernelNodeSetAttribute(CUresult result, CUgraphNode hNode, CUkernelNodeAttrID attr,
                                             const CUkernelNodeAttrValue *value)
{
    (void)result;
    (void)hNode;
    (void)attr;
    (void)value;
    fgv_update_reshaped();
}

void fgv_after_cuGraphKernelNodeCopyAttributes(CUresult result, CUgraphNode dst, CUgraphNode src)
{
    (void)result;
    (void)dst;
    (void)src;
    fgv_update_reshaped();
}

/* ---- on and off ---- */

bool fgv_update_may_be_disabled(uint64_t exec, uint64_t node)
{
    pthread_mutex_lock(&lock);
    const struct update *update = find(exec, node, 0);
    bool may_be = update && (!update->has_params || update->params.type == CU_GRAPH_NODE_TYPE_KERNEL ||
                             update->params.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                             update->params.type == CU_GRAPH_NODE_TYPE_MEMSET);
    pthread_mutex_unlock(&lock);
    return may_be;
}

void fgv_update_remember_disabled(uint64_t exec, uint64_t node)
{
    pthread_mutex_lock(&lock);
    find_or_add(exec, node, 0);
    pthread_mutex_unlock(&lock);
}
