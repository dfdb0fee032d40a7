/*
 * Memory that graphs allocate. A node's memory is there, at its address, from when the node is made until the node,
 * what was instantiated of it and the program have all let go of it; it is the program's between a launch and a free.
 * Graphs with such nodes have CUDA's limits: they are instantiated once at a time, not cloned, and no node goes.
 */
#include "graphs/graph_memory.h"

#include <stdlib.h>

#include "cuda_api/prototypes.h"
#include "memory/memory_map.h"
#include "stream/queue.h"

struct sgp_graph_memory {
    uint32_t nr_references; /* nodes, and the program while it is live */
    struct sgp_device *device;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    bool is_live;
    bool is_instantiated;
};

static uint64_t used[SGP_MAX_DEVICES][CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH + 1]; /* by attribute */

static void add_up(const struct sgp_device *device, CUgraphMem_attribute current, int64_t bytes)
{
    uint64_t *values = used[device->ordinal];

    values[current] += (uint64_t)bytes;
    if (values[current + 1] < values[current]) { /* each has its high watermark beside it */
        values[current + 1] = values[current];
    }
}

struct sgp_graph_memory *sgp_graph_memory_find(CUdeviceptr address)
{
    const struct sgp_allocation *allocation = sgp_memory_find(address);

    return allocation && allocation->start == address ? allocation->graph_memory : NULL;
}

void sgp_graph_memory_keep(struct sgp_graph_memory *memory)
{
    memory->nr_references++;
}

void sgp_graph_memory_release(struct sgp_graph_memory *memory)
{
    struct sgp_allocation *allocation;

    if (--memory->nr_references) {
        return;
    }
    add_up(memory->device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, -(int64_t)memory->params.bytesize);
    allocation = sgp_memory_find(memory->params.dptr);
    if (allocation && allocation->graph_memory == memory) { /* else it went with its context */
        sgp_memory_delete(allocation);
    }
    free(memory);
}

const CUDA_MEM_ALLOC_NODE_PARAMS *sgp_graph_memory_params(const struct sgp_graph_memory *memory)
{
    return &memory->params;
}

bool sgp_graph_memory_is_live(const struct sgp_graph_memory *memory)
{
    return memory->is_live;
}

CUresult sgp_graph_memory_instantiate(struct sgp_graph_memory *memory)
{
    if (memory->is_instantiated) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    memory->is_instantiated = true;
    return CUDA_SUCCESS;
}

void sgp_graph_memory_forget_exec(struct sgp_graph_memory *memory)
{
    memory->is_instantiated = false;
}

void sgp_graph_memory_launched(struct sgp_graph_memory *memory)
{
    if (memory->is_live) {
        return; /* freed by the launch itself, and had again */
    }
    memory->is_live = true;
    sgp_graph_memory_keep(memory);
    add_up(memory->device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, (int64_t)memory->params.bytesize);
}

/* It is free for the next launch, in the order of calls; the reference goes when nothing can use it any more. */
static void end_life(struct sgp_graph_memory *memory)
{
    memory->is_live = false;
    add_up(memory->device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, -(int64_t)memory->params.bytesize);
}

struct free_command {
    struct sgp_command command;
    struct sgp_graph_memory *memory;
};

static void free_finish(struct sgp_command *command)
{
    sgp_graph_memory_release(((struct free_command *)command)->memory);
    free(command);
}

CUresult sgp_graph_memory_free(struct sgp_graph_memory *memory, struct CUstream_st *stream)
{
    struct free_command *command;

    if (!memory->is_live) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    command = calloc(1, sizeof(*command));
    if (!command) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *command = (struct free_command){
        .command = {.run = sgp_command_in_order, .finish = free_finish, .runs_after_error = true}, .memory = memory};
    end_life(memory);
    return sgp_queue_submit(stream, &command->command, NULL);
}

static bool is_live(const struct sgp_allocation *allocation)
{
    return allocation->graph_memory->is_live;
}

static void freed(struct sgp_allocation *allocation)
{
    struct sgp_graph_memory *memory = allocation->graph_memory;

    end_life(memory);
    sgp_graph_memory_release(memory);
}

static CUresult free_in(struct sgp_allocation *allocation, struct CUstream_st *stream)
{
    return sgp_graph_memory_free(allocation->graph_memory, stream);
}

static const struct sgp_memory_owner owner = {.is_live = is_live, .free = freed, .free_in = free_in};

static bool is_own_memory(const CUDA_MEM_ALLOC_NODE_PARAMS *params, const struct CUctx_st *context)
{
    if (params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        sgp_device_find(params->poolProps.location.id) != context->device) {
        return false;
    }
    for (size_t i = 0; i < params->accessDescCount; i++) {
        if (params->accessDescs[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !sgp_device_find(params->accessDescs[i].location.id)) {
            return false;
        }
    }
    return true;
}

CUresult sgp_graph_memory_new(struct CUctx_st *context, CUDA_MEM_ALLOC_NODE_PARAMS *params,
                              struct sgp_graph_memory **made)
{
    struct sgp_allocation *allocation;
    struct sgp_graph_memory *memory;
    void *address;
    CUresult result;

    if (!params->bytesize || params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        (params->accessDescCount && !params->accessDescs) || !is_own_memory(params, context)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (params->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    memory = calloc(1, sizeof(*memory));
    if (!memory) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = sgp_memory_new(context, params->bytesize, SGP_MEMORY_GRAPH, &address);
    if (result) {
        free(memory);
        return result;
    }
    params->dptr = (CUdeviceptr)(uintptr_t)address;
    *memory = (struct sgp_graph_memory){.nr_references = 1, .device = context->device, .params = *params};
    memory->params.accessDescs = NULL;
    memory->params.accessDescCount = 0;
    allocation = sgp_memory_find((uintptr_t)address);
    allocation->owner = &owner;
    allocation->graph_memory = memory;
    add_up(memory->device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, (int64_t)params->bytesize);
    *made = memory;
    return CUDA_SUCCESS;
}

/* ---- calls ---- */

/* Nothing is kept that no graph has. */
SGP_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    struct sgp_device *found;
    CUresult result = sgp_enter_device(device, &found);

    return result ? result : sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    struct sgp_device *found;
    CUresult result = sgp_enter_device(device, &found);

    if (result) {
        return result;
    }
    if (!value || (unsigned int)attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *(cuuint64_t *)value = used[device][attr];
    return sgp_leave(CUDA_SUCCESS);
}

SGP_EXPORT CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    struct sgp_device *found;
    CUresult result = sgp_enter_device(device, &found);

    if (result) {
        return result;
    }
    if (!value || *(cuuint64_t *)value != 0 ||
        (attr != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attr != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)) {
        return sgp_leave(CUDA_ERROR_INVALID_VALUE);
    }
    used[device][attr] = used[device][attr - 1];
    return sgp_leave(CUDA_SUCCESS);
}
