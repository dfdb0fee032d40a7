/* Pieces of GPU work as data: see work.h. */
#include "work.h"

#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "graph_memory.h"

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

static void hold(const struct sgp_work *work)
{
    if (work->context) {
        sgp_object_hold(work->context);
    }
    if (work->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        sgp_object_hold(work->kernel.launch.module);
    }
    if (work->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD || work->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
        sgp_object_hold(work->event);
    }
    if (sgp_is_of_memory(work->type)) {
        sgp_graph_memory_hold(work->memory);
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
    hold(work);
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
    if (from->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        if (!parameters_make(to)) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            memcpy(to->kernel.parameters, from->kernel.parameters, from->kernel.launch.kernel->parameters_bytes);
        }
    }
    if (!result) {
        hold(to);
    }
    return result;
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
    if (sgp_is_of_memory(work->type) && work->memory) {
        sgp_graph_memory_release(work->memory);
    }
    if (work->type == CU_GRAPH_NODE_TYPE_GRAPH && work->child) {
        sgp_graph_delete(work->child);
    }
    if (work->context) {
        sgp_object_release(work->context);
    }
    *work = (struct sgp_work){.type = CU_GRAPH_NODE_TYPE_EMPTY};
}

CUresult sgp_work_submit(const struct sgp_work *work, struct CUstream_st *stream)
{
    switch (work->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return sgp_launch_submit(work->context, stream, &work->kernel.launch, work->kernel.parameters);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return sgp_box_submit(stream, &work->box);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return sgp_set_submit(stream, &work->set);
    case CU_GRAPH_NODE_TYPE_HOST:
        return sgp_host_submit(stream, stream, work->host.fn, NULL, work->host.userData);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return sgp_event_record(work->event, stream);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return work->event->stream ? sgp_stream_wait(stream, work->event->stream, work->event->sequence) : CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        sgp_graph_memory_launched(work->memory);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return sgp_graph_memory_free(work->memory, stream);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}
