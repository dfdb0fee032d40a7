/*
 * The window behind the region: memory that the VM's second device maps into the guest on request, in pieces
 * (client/piece.c).
 *
 * The daemon sends each piece to every worker of the VM before it gives it to the VM, so a guest that sees one finds it
 * here in the socket. It is mapped when the guest asks for it.
 */
#include "client/daemon.h"
#include "client/service.h"
#include "client/state.h"
#include "ivshmem/region.h"

CUresult fgw_serve_window_map(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_window_map *fixed = request->fixed;
    struct fgv_reply_window_map *mapped = reply;
    const struct fgv_window *window = &worker->region.window;
    while (window->mapped_bytes < fixed->needed_bytes && fgw_daemon_read(worker)) {
    }
    mapped->mapped_bytes = window->mapped_bytes;
    return CUDA_SUCCESS;
}
