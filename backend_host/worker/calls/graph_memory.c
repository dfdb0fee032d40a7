/* Memory that graphs allocate: see graph_memory.h. */
#include "calls/graph_memory.h"

#include <stdlib.h>

#include "calls/pool.h"
#include "calls/state.h"
#include "client/handles.h"
#include "client/state.h"
#include "page/account.h"
#include "page/room.h"

/* Hangs on the handle of a graph with allocations, or that frees another's. */
struct sum {
    uint64_t bytes; /* that launches have yet to take: a device library may have taken some with the node */
    uint32_t nr_allocations, nr_frees;
};

/* What was instantiated of such a graph. */
struct fgw_graph_need {
    struct fgw_graph_need *next;
    CUgraphExec exec;
    uint64_t bytes;
    uint64_t nr_trims; /* when it was launched last, 0: never */
};

static struct fgv_driver real; /* the wrapped calls of the one device library of this process */

static uint64_t kept_bytes(struct fgw_worker *worker)
{
    cuuint64_t value = 0;
    CUresult result =
        real.cuDeviceGetGraphMemAttribute
            ? real.cuDeviceGetGraphMemAttribute(worker->device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value)
            : CUDA_ERROR_NOT_SUPPORTED;
    return result == CUDA_SUCCESS ? value : 0;
}

/* Counts what graphs keep now; false when it is more than the quota has left: then less is charged. */
static bool count(struct fgw_worker *worker)
{
    struct fgw_graph_memory *memory = &worker->calls->graph_memory;
    const uint64_t due_bytes = kept_bytes(worker);
    fgw_room_count_placed(&worker->grantee, due_bytes - memory->placed_bytes);
    memory->placed_bytes = due_bytes;
    if (due_bytes <= memory->counted_bytes) {
        fgw_quota_give(&worker->grantee, memory->counted_bytes - due_bytes);
    } else if (!fgw_quota_take(&worker->grantee, due_bytes - memory->counted_bytes)) {
        return false;
    }
    memory->counted_bytes = due_bytes;
    return true;
}

void fgw_graph_memory_trim(struct fgw_worker *worker)
{
    if (worker->calls->graph_memory.counted_bytes == 0 || !real.cuDeviceGraphMemTrim) {
        return;
    }
    real.cuDeviceGraphMemTrim(worker->device);
    worker->calls->graph_memory.nr_trims++;
    count(worker);
}

static struct fgw_graph_need **find(struct fgw_worker *worker, CUgraphExec exec)
{
    struct fgw_graph_need **link = &worker->calls->graph_memory.needs;
    while (*link && (*link)->exec != exec) {
        link = &(*link)->next;
    }
    return link;
}

/* Whether the quota and the device have room for all of it. */
static bool fits(struct fgw_worker *worker, uint64_t bytes)
{
    if (!fgw_quota_take(&worker->grantee, bytes)) {
        return false;
    }
    fgw_quota_give(&worker->grantee, bytes);
    return fgw_room_may_place(&worker->grantee, bytes);
}

static bool may_run(struct fgw_worker *worker, const struct fgw_graph_need *need)
{
    if (count(worker) && need->nr_trims == worker->calls->graph_memory.nr_trims + 1) {
        return true;
    }
    if (fits(worker, need->bytes)) {
        return true;
    }
    fgw_pools_trim(worker);
    fgw_graph_memory_trim(worker);
    return count(worker) && fits(worker, need->bytes);
}

static CUresult run(CUresult (*call)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream)
{
    struct fgw_worker *worker = fgw_the_worker;
    struct fgw_graph_need *need = *find(worker, exec);
    if (!need) {
        return call(exec, stream);
    }
    if (!may_run(worker, need)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = call(exec, stream);
    count(worker);
    if (result == CUDA_SUCCESS) {
        need->nr_trims = worker->calls->graph_memory.nr_trims + 1;
    }
    return result;
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
    return run(real.cuGraphLaunch, exec, stream);
}

static CUresult upload(CUgraphExec exec, CUstream stream)
{
    return run(real.cuGraphUpload, exec, stream);
}

/* Its nodes may have kept memory. */
static CUresult destroy_graph(CUgraph graph)
{
    CUresult result = real.cuGraphDestroy(graph);
    if (fgw_the_worker->calls->graph_memory.counted_bytes != 0) {
        count(fgw_the_worker);
    }
    return result;
}

static CUresult destroy(CUgraphExec exec)
{
    struct fgw_worker *worker = fgw_the_worker;
    struct fgw_graph_need **link = find(worker, exec), *need = *link;
    CUresult result = real.cuGraphExecDestroy(exec);
    if (result == CUDA_SUCCESS && need) {
        *link = need->next;
        free(need);
        count(worker);
    }
    return result;
}

static CUresult trim(CUdevice device)
{
    CUresult result = real.cuDeviceGraphMemTrim(device);
    fgw_the_worker->calls->graph_memory.nr_trims++;
    count(fgw_the_worker);
    return result;
}

void fgw_graph_memory_wrap(struct fgv_driver *driver)
{
    real = *driver;
    driver->cuGraphLaunch = real.cuGraphLaunch ? launch : NULL;
    driver->cuGraphUpload = real.cuGraphUpload ? upload : NULL;
    driver->cuGraphDestroy = real.cuGraphDestroy ? destroy_graph : NULL;
    driver->cuGraphExecDestroy = real.cuGraphExecDestroy ? destroy : NULL;
    driver->cuDeviceGraphMemTrim = real.cuDeviceGraphMemTrim ? trim : NULL;
}

/* NULL: there is no such graph, or no memory. */
static struct sum *sum_of(struct fgw_worker *worker, uint64_t graph)
{
    const struct fgw_handle handle = fgw_handle_find(worker, FGV_HANDLE_GRAPH, graph);
    struct sum *sum = handle.object || handle.number == 0 ? handle.object : calloc(1, sizeof(*sum));
    if (sum) {
        fgw_handle_hang(worker, FGV_HANDLE_GRAPH, graph, sum);
    }
    return sum;
}

CUresult fgw_graph_memory_may_add(struct fgw_worker *worker, uint64_t graph, uint64_t bytes)
{
    const struct fgw_handle handle = fgw_handle_find(worker, FGV_HANDLE_GRAPH, graph);
    if (handle.number == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (fgw_handle_above(worker, &handle).number != 0 || !real.cuDeviceGetGraphMemAttribute) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!sum_of(worker, graph)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return count(worker) && fits(worker, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void fgw_graph_memory_add(struct fgw_worker *worker, uint64_t graph, uint64_t bytes)
{
    struct sum *sum = fgw_handle_find(worker, FGV_HANDLE_GRAPH, graph).object;
    const uint64_t before_bytes = worker->calls->graph_memory.counted_bytes;
    count(worker);
    const uint64_t taken_bytes = worker->calls->graph_memory.counted_bytes - before_bytes;
    const uint64_t left_bytes = bytes > taken_bytes ? bytes - taken_bytes : 0;
    sum->nr_allocations++;
    sum->bytes = left_bytes > UINT64_MAX - sum->bytes ? UINT64_MAX : sum->bytes + left_bytes;
}

void fgw_graph_memory_add_free(struct fgw_worker *worker, uint64_t graph)
{
    struct sum *sum = sum_of(worker, graph);
    if (sum) {
        sum->nr_frees++;
    }
}

CUresult fgw_graph_memory_instantiated(struct fgw_worker *worker, uint64_t graph, CUgraphExec exec, bool *is_doubtful)
{
    const struct sum *sum = fgw_handle_find(worker, FGV_HANDLE_GRAPH, graph).object;
    *is_doubtful = sum && sum->nr_frees != sum->nr_allocations;
    if (!sum || sum->nr_allocations == 0) {
        return CUDA_SUCCESS;
    }
    struct fgw_graph_need *need = calloc(1, sizeof(*need));
    if (!need) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *need = (struct fgw_graph_need){.next = worker->calls->graph_memory.needs, .exec = exec, .bytes = sum->bytes};
    worker->calls->graph_memory.needs = need;
    return CUDA_SUCCESS;
}

void fgw_graph_memory_drop(struct fgw_worker *worker)
{
    struct fgw_graph_memory *memory = &worker->calls->graph_memory;
    while (memory->needs) {
        struct fgw_graph_need *need = memory->needs;
        memory->needs = need->next;
        free(need);
    }
    fgw_quota_give(&worker->grantee, memory->counted_bytes);
    fgw_room_unplace(&worker->grantee, memory->placed_bytes);
    memory->counted_bytes = memory->placed_bytes = 0;
}
