/* A record that the guest gave up before it was filled: nothing follows from it. */
#include "client/service.h"

CUresult fgw_serve_given_up(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    (void)worker;
    (void)request;
    (void)reply;
    return CUDA_SUCCESS;
}
