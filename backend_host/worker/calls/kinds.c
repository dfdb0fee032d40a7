#include "calls/kinds.h"

#include "calls/array.h"
#include "calls/code.h"
#include "calls/context.h"
#include "calls/kept_image.h"
#include "calls/link.h"
#include "calls/physical.h"
#include "calls/pool.h"
#include "calls/stream.h"
#include "calls/texture.h"
#include "client/state.h"
#include "client/stream.h"
#include "parts/variant.h"
#include "track/ends.h"

/* docs/objects.md has a table of these rows, in which the comment before a row says what is saved of it. */
const struct fgw_kind fgw_kinds[FGW_NR_KINDS] = {
    /* whether it is the primary one, its flags, its limits, its preference for caches */
    [FGV_HANDLE_CONTEXT] = {.name = "context",
                            .above = FGW_BELOW(0),
                            .unknown = CUDA_ERROR_INVALID_CONTEXT,
                            .save = fgw_context_save,
                            .restore = fgw_context_restore},
    /* its flags, its priority, its attributes */
    [FGV_HANDLE_STREAM] = {.name = "stream",
                           .above = FGW_BELOW(FGV_HANDLE_CONTEXT),
                           .unknown = CUDA_ERROR_INVALID_HANDLE,
                           .is_of_context = true,
                           .has_room = fgw_stream_has_room,
                           .attach = fgw_stream_attach,
                           .release = fgw_stream_release,
                           .save = fgw_stream_save,
                           .restore = fgw_stream_restore},
    /* its flags */
    [FGV_HANDLE_EVENT] = {.name = "event",
                          .above = FGW_BELOW(FGV_HANDLE_CONTEXT),
                          .unknown = CUDA_ERROR_INVALID_HANDLE,
                          .is_of_context = true,
                          .save = fgw_event_save,
                          .restore = fgw_event_restore},
    /* its image, where images are kept, and the compiler's options; of a library's module nothing */
    [FGV_HANDLE_MODULE] = {.name = "module",
                           .above = FGW_BELOW(FGV_HANDLE_CONTEXT) | FGW_BELOW(FGV_HANDLE_LIBRARY),
                           .unknown = CUDA_ERROR_INVALID_HANDLE,
                           .is_of_context = true,
                           .release = fgw_image_release,
                           .save = fgw_image_save,
                           .restore = fgw_image_restore},
    /* its name, of a kernel's function none, and its attributes */
    [FGV_HANDLE_FUNCTION] = {.name = "function",
                             .above = FGW_BELOW(FGV_HANDLE_MODULE) | FGW_BELOW(FGV_HANDLE_KERNEL),
                             .unknown = CUDA_ERROR_INVALID_HANDLE,
                             .is_of_context = true,
                             .release = fgw_kernel_release,
                             .save = fgw_code_save,
                             .restore = fgw_code_restore},
    /* its image, where images are kept, and the compiler's options */
    [FGV_HANDLE_LIBRARY] = {.name = "library",
                            .above = FGW_BELOW(0),
                            .unknown = CUDA_ERROR_INVALID_HANDLE,
                            .release = fgw_image_release,
                            .save = fgw_image_save,
                            .restore = fgw_image_restore},
    /* its name, its attributes */
    [FGV_HANDLE_KERNEL] = {.name = "kernel",
                           .above = FGW_BELOW(FGV_HANDLE_LIBRARY),
                           .unknown = CUDA_ERROR_INVALID_HANDLE,
                           .release = fgw_kernel_release,
                           .save = fgw_code_save,
                           .restore = fgw_code_restore},
    [FGV_HANDLE_LINK] = {.name = "link",
                         .above = FGW_BELOW(0),
                         .unknown = CUDA_ERROR_INVALID_HANDLE,
                         .release = fgw_link_release,
                         .cannot = "the driver alone has its inputs, and writes logs for as long as it lives"},
    /* its descriptor; of a level which one it is */
    [FGV_HANDLE_ARRAY] = {.name = "array",
                          .above = FGW_BELOW(FGV_HANDLE_CONTEXT) | FGW_BELOW(FGV_HANDLE_MIPMAPPED_ARRAY),
                          .unknown = CUDA_ERROR_INVALID_HANDLE,
                          .is_of_context = true,
                          .release = fgw_array_release,
                          .save = fgw_array_save,
                          .restore = fgw_array_restore},
    /* its descriptor, the number of its levels */
    [FGV_HANDLE_MIPMAPPED_ARRAY] = {.name = "mipmapped array",
                                    .above = FGW_BELOW(FGV_HANDLE_CONTEXT),
                                    .unknown = CUDA_ERROR_INVALID_HANDLE,
                                    .is_of_context = true,
                                    .release = fgw_array_release,
                                    .save = fgw_array_save,
                                    .restore = fgw_array_restore},
    /* its size, its attributes; not while there is memory from it */
    [FGV_HANDLE_MEMORY_POOL] = {.name = "memory pool",
                                .above = FGW_BELOW(0),
                                .unknown = CUDA_ERROR_INVALID_HANDLE,
                                .release = fgw_pool_release,
                                .save = fgw_pool_save,
                                .restore = fgw_pool_restore},
    /* its size, its properties, how often it was retained */
    [FGV_HANDLE_ALLOCATION] = {.name = "allocation",
                               .above = FGW_BELOW(0),
                               .unknown = CUDA_ERROR_INVALID_HANDLE,
                               .release = fgw_allocation_release,
                               .save = fgw_allocation_save,
                               .restore = fgw_allocation_restore},
    [FGV_HANDLE_GRAPH] = {.name = "graph",
                          .above = FGW_BELOW(0) | FGW_BELOW(FGV_HANDLE_GRAPH_NODE),
                          .unknown = CUDA_ERROR_INVALID_VALUE,
                          .is_found_by_native = true,
                          .cannot = "the driver alone has all of its nodes: a capture makes some that no call named"},
    [FGV_HANDLE_GRAPH_NODE] = {.name = "graph node",
                               .above = FGW_BELOW(FGV_HANDLE_GRAPH),
                               .unknown = CUDA_ERROR_INVALID_VALUE,
                               .is_found_by_native = true,
                               .cannot = "it is saved with its graph or not at all"},
    [FGV_HANDLE_GRAPH_EXEC] = {.name = "graph exec",
                               .above = FGW_BELOW(0),
                               .unknown = CUDA_ERROR_INVALID_VALUE,
                               .cannot =
                                   "no driver tells what is in an instantiated graph, whose own graph may be gone"},
    /* the request that made it; its value comes out equal */
    [FGW_OWN_TEXTURE] = {.name = "texture object",
                         .above = FGW_BELOW(FGV_HANDLE_CONTEXT),
                         .unknown = CUDA_ERROR_INVALID_VALUE,
                         .is_of_context = true,
                         .save = fgw_texture_save,
                         .restore = fgw_texture_restore},
    /* its array; its value comes out equal */
    [FGW_OWN_SURFACE] = {.name = "surface object",
                         .above = FGW_BELOW(FGV_HANDLE_CONTEXT),
                         .unknown = CUDA_ERROR_INVALID_VALUE,
                         .is_of_context = true,
                         .save = fgw_surface_save,
                         .restore = fgw_surface_restore},
    [FGW_HANDLE_GRAPH_CONDITION] = {.name = "graph condition",
                                    .above = FGW_BELOW(FGV_HANDLE_GRAPH),
                                    .unknown = CUDA_ERROR_INVALID_VALUE,
                                    .cannot = "kernels have its value, and the driver gives another"},
};
