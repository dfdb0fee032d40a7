#include "calls/lack.h"

#include "client/state.h"
#include "page/room.h"

void fgw_lack_begin(struct fgw_worker *worker, bool may_wait)
{
    worker->calls->lack = (struct fgw_lack){.may_wait = may_wait};
}

uint64_t fgw_lack_end(struct fgw_worker *worker)
{
    const uint64_t bytes = worker->calls->lack.bytes;
    worker->calls->lack = (struct fgw_lack){0};
    return bytes;
}

CUresult fgw_lack_of(struct fgw_worker *worker, uint64_t bytes)
{
    struct fgw_lack *lack = &worker->calls->lack;
    lack->bytes = lack->may_wait && fgw_room_is_short(&worker->grantee) ? bytes : 0;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

bool fgw_lack_is_told(const struct fgw_worker *worker)
{
    return worker->calls->lack.bytes != 0;
}
