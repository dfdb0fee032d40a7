#include "calls/kinds.h"

#include "calls/array.h"
#include "calls/link.h"
#include "client/state.h"
#include "parts/variant.h"
#include "track/sync.h"

const fgw_release fgw_releases[FGV_HANDLE_KINDS] = {
    [FGV_HANDLE_STREAM] = fgw_stream_release,   [FGV_HANDLE_MODULE] = fgw_image_release,
    [FGV_HANDLE_FUNCTION] = fgw_kernel_release, [FGV_HANDLE_LIBRARY] = fgw_image_release,
    [FGV_HANDLE_KERNEL] = fgw_kernel_release,   [FGV_HANDLE_LINK] = fgw_link_release,
    [FGV_HANDLE_ARRAY] = fgw_array_release,     [FGV_HANDLE_MIPMAPPED_ARRAY] = fgw_array_release,
};
