#include "calls/kinds.h"

#include "calls/array.h"
#include "calls/link.h"
#include "client/state.h"
#include "parts/variant.h"
#include "track/sync.h"

const fgv_release fgv_releases[FGV_HANDLE_KINDS] = {
    [FGV_HANDLE_STREAM] = fgv_stream_release,   [FGV_HANDLE_MODULE] = fgv_image_release,
    [FGV_HANDLE_FUNCTION] = fgv_kernel_release, [FGV_HANDLE_LIBRARY] = fgv_image_release,
    [FGV_HANDLE_KERNEL] = fgv_kernel_release,   [FGV_HANDLE_LINK] = fgv_link_release,
    [FGV_HANDLE_ARRAY] = fgv_array_release,     [FGV_HANDLE_MIPMAPPED_ARRAY] = fgv_array_release,
};
