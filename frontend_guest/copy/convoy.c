/* Chunks on their way: see convoy.h. */
#include "copy/convoy.h"

#include "call/chunks.h"

void fgv_convoy_add(struct fgv_convoy *convoy, uint32_t chunk, uint32_t bytes)
{
    uint32_t last = (convoy->first + convoy->nr++) % FGV_CONVOY_MAX;
    convoy->chunks[last] = chunk;
    convoy->bytes[last] = bytes;
}

uint32_t fgv_convoy_remove(struct fgv_convoy *convoy, uint32_t *bytes)
{
    uint32_t chunk = convoy->chunks[convoy->first];
    *bytes = convoy->bytes[convoy->first];
    convoy->first = (convoy->first + 1) % FGV_CONVOY_MAX;
    convoy->nr--;
    return chunk;
}

CUresult fgv_convoy_chunk(struct fgv_convoy *convoy, uint32_t *chunk)
{
    if (convoy->nr < FGV_CONVOY_MAX && (fgv_chunk_take_over(chunk) || fgv_chunk_try(chunk))) {
        return CUDA_SUCCESS;
    }
    if (convoy->nr == 0) {
        return fgv_chunk_take(chunk);
    }
    uint32_t bytes;
    *chunk = fgv_convoy_remove(convoy, &bytes);
    CUresult result = fgv_chunk_wait(*chunk);
    if (result != CUDA_SUCCESS) {
        fgv_chunk_leave_behind(*chunk);
    }
    return result;
}

void fgv_convoy_leave_behind(struct fgv_convoy *convoy)
{
    uint32_t bytes;
    while (convoy->nr > 0) {
        fgv_chunk_leave_behind(fgv_convoy_remove(convoy, &bytes));
    }
}
