/*
 * Host functions in graphs. A node has the number of its function; a graph, a clone of it and what is instantiated of
 * it hold on to the number as they do to user objects, and the last of them gives it up.
 *
 * Wrong when: there is no memory for a reference: the function is then kept for ever.
 */
#include "call.h"
#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"
#include "graph.h"
#include "host_function.h"

static void function_drop(void *number)
{
    fgv_host_function_drop((uint64_t)(uintptr_t)number);
}

void fgv_graph_host_own(uint64_t owner, uint64_t number)
{
    void *value = (void *)(uintptr_t)number;
    CUuserObject object;
    if (fgv_user_object_is_held(owner, function_drop, value)) {
        fgv_host_function_drop(number);
        return;
    }
    if (cuUserObjectCreate(&object, value, function_drop, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) == CUDA_SUCCESS) {
        cuGraphRetainUserObject((CUgraph)(uintptr_t)owner, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    }
}

CUresult fgv_graph_host_capture(uint64_t stream, CUhostFn function, void *data)
{
    uint64_t number;
    CUresult result = fgv_host_function_keep(function, data, &number);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fgv_call call;
    struct fgv_reply_capture_host_function reply;
    struct fgv_request_capture_host_function *request =
        fgv_call_begin(&call, FGV_CALL_capture_host_function, sizeof(*request), 0);
    if (!request) {
        fgv_host_function_drop(number);
        return call.error;
    }
    *request = (struct fgv_request_capture_host_function){.stream = stream, .function = number};
    result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result == CUDA_SUCCESS) {
        fgv_graph_host_own(reply.root, number);
    } else {
        fgv_host_function_drop(number);
    }
    return result;
}
