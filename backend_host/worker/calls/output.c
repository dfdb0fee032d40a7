/* A guest fetches what kernels printed: see printing.c. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/count.h"
#include "client/arena.h"
#include "client/printing.h"
#include "client/service.h"
#include "client/state.h"
#include "page/layout.h"

CUresult fgw_serve_output_fetch(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_output_fetch *fixed = request->fixed;
    struct fgv_reply_output_fetch *answer = reply;
    struct stat status;
    uint8_t *to = fgw_arena_chunk(worker, fixed->chunk);
    if (!to || fixed->stream >= 2) {
        fgw_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct fgw_printed *printed = &worker->printing.printed[fixed->stream];
    fflush(stdout);
    if (printed->fd == 0 || fstat(printed->fd, &status) != 0) {
        return CUDA_SUCCESS;
    }
    uint64_t size_bytes = (uint64_t)status.st_size;
    uint64_t left_bytes = size_bytes > printed->read_bytes ? size_bytes - printed->read_bytes : 0;
    uint64_t room_bytes = fixed->capacity < worker->layout.chunk_bytes ? fixed->capacity : worker->layout.chunk_bytes;
    ssize_t got = pread(printed->fd, to, left_bytes < room_bytes ? left_bytes : room_bytes, (off_t)printed->read_bytes);
    if (got > 0) {
        left_bytes -= (uint64_t)got;
        answer->bytes = (uint32_t)got;
    }
    answer->more = left_bytes < UINT32_MAX ? (uint32_t)left_bytes : UINT32_MAX;
    fgw_printing_fetched(worker, fixed->stream, got > 0 ? (uint64_t)got : 0, left_bytes == 0);
    return CUDA_SUCCESS;
}
