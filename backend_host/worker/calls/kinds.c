#include "calls/kinds.h"

#include "calls/array.h"
#include "calls/link.h"
#include "calls/pool.h"
#include "calls/virtual_memory.h"
#include "client/state.h"
#include "client/stream.h"
#include "parts/variant.h"
#include "track/sync.h"

const struct fgw_kind fgw_kinds[FGW_NR_KINDS] = {
    [FGV_HANDLE_CONTEXT] = {.unknown = CUDA_ERROR_INVALID_CONTEXT},
    [FGV_HANDLE_STREAM] = {.unknown = CUDA_ERROR_INVALID_HANDLE,
                           .is_of_context = true,
                           .attach = fgw_stream_attach,
                           .release = fgw_stream_release},
    [FGV_HANDLE_EVENT] = {.unknown = CUDA_ERROR_INVALID_HANDLE, .is_of_context = true},
    [FGV_HANDLE_MODULE] = {.unknown = CUDA_ERROR_INVALID_HANDLE, .is_of_context = true, .release = fgw_image_release},
    [FGV_HANDLE_FUNCTION] = {.unknown = CUDA_ERROR_INVALID_HANDLE,
                             .is_of_context = true,
                             .release = fgw_kernel_release},
    [FGV_HANDLE_LIBRARY] = {.unknown = CUDA_ERROR_INVALID_HANDLE, .release = fgw_image_release},
    [FGV_HANDLE_KERNEL] = {.unknown = CUDA_ERROR_INVALID_HANDLE, .release = fgw_kernel_release},
    [FGV_HANDLE_LINK] = {.unknown = CUDA_ERROR_INVALID_HANDLE, .release = fgw_link_release},
    [FGV_HANDLE_ARRAY] = {.unknown = CUDA_ERROR_INVALID_HANDLE, .is_of_context = true, .release = fgw_array_release},
    [FGV_HANDLE_MIPMAPPED_ARRAY] = {.unknown = CUDA_ERROR_INVALID_HANDLE,
                                    .is_of_context = true,
                                    .release = fgw_array_release},
    [FGV_HANDLE_MEMORY_POOL] = {.unknown = CUDA_ERROR_INVALID_HANDLE, .release = fgw_pool_release},
    [FGV_HANDLE_ALLOCATION] = {.unknown = CUDA_ERROR_INVALID_HANDLE, .release = fgw_allocation_release},
    [FGV_HANDLE_GRAPH] = {.unknown = CUDA_ERROR_INVALID_VALUE, .is_found_by_native = true},
    [FGV_HANDLE_GRAPH_NODE] = {.unknown = CUDA_ERROR_INVALID_VALUE, .is_found_by_native = true},
    [FGV_HANDLE_GRAPH_EXEC] = {.unknown = CUDA_ERROR_INVALID_VALUE},
    [FGW_OWN_TEXTURE] = {.unknown = CUDA_ERROR_INVALID_VALUE, .is_of_context = true},
    [FGW_OWN_SURFACE] = {.unknown = CUDA_ERROR_INVALID_VALUE, .is_of_context = true},
    [FGW_HANDLE_GRAPH_CONDITION] = {.unknown = CUDA_ERROR_INVALID_VALUE},
};
