#include "client/arena.h"

#include "base/count.h"
#include "client/service.h"
#include "client/state.h"
#include "ivshmem/region.h"
#include "ivshmem/response.h"
#include "page/layout.h"

uint8_t *fgw_arena_at(const struct fgw_worker *worker, uint64_t offset, uint64_t bytes)
{
    const struct fgv_span *arena = &worker->layout.arena;
    if (offset > arena->bytes || bytes > arena->bytes - offset) {
        return NULL;
    }
    return worker->region.base + arena->offset + offset;
}

uint8_t *fgw_arena_chunk(const struct fgw_worker *worker, uint32_t chunk)
{
    if (chunk >= worker->layout.nr_chunks) {
        return NULL;
    }
    return fgw_arena_at(worker, (uint64_t)chunk * worker->layout.chunk_bytes, worker->layout.chunk_bytes);
}

void fgw_complete_chunk(struct fgw_worker *worker, uint32_t chunk, CUresult result)
{
    if (!fgv_chunk_complete(&worker->region, &worker->layout, chunk, (uint32_t)result)) {
        fgw_count(&worker->slot->nr_refused, 1);
    }
}

uint64_t fgw_copy_bytes(const struct fgw_request *request)
{
    switch (request->header->call) {
    case FGV_CALL_cuMemcpyHtoDAsync_v2:
        return ((const struct fgv_request_cuMemcpyHtoDAsync_v2 *)request->fixed)->bytes;
    case FGV_CALL_cuMemcpyDtoHAsync_v2:
        return ((const struct fgv_request_cuMemcpyDtoHAsync_v2 *)request->fixed)->bytes;
    default:
        return 0;
    }
}

bool fgw_copy_is_pinned(const struct fgw_request *request)
{
    return request->header->call == FGV_CALL_cuMemcpyHtoDAsync_v2
               ? ((const struct fgv_request_cuMemcpyHtoDAsync_v2 *)request->fixed)->place == FGV_PLACE_HEAP
               : ((const struct fgv_request_cuMemcpyDtoHAsync_v2 *)request->fixed)->place == FGV_PLACE_HEAP;
}
