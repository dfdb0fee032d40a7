/*
 * The window behind the region: memory that the VM's second device maps into the guest on request, in pieces.
 *
 * The daemon sends each piece to every worker of the VM before it gives it to the VM, so a guest that sees one finds it
 * here in the socket. It is mapped when the guest asks for it, at the address behind what is mapped, which is the
 * guest's too. Place and size are the daemon's word, and the guest has no say in them; until it is mapped an address
 * there is outside of the heap.
 *
 * Wrong when: something of this process lies where the window would. The guest then does without one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "client/service.h"
#include "client/state.h"
#include "ivshmem/piece.h"
#include "ivshmem/region.h"
#include "loop/state.h"

/* Receives one piece and its descriptor. False: none is there, or the daemon is gone. */
static bool receive(struct fgw_worker *worker, struct fgv_piece *piece, int *file)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))]; /* its padding would hold a second descriptor */
    struct iovec bytes = {.iov_base = piece, .iov_len = sizeof(*piece)};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_LEN(sizeof(int))};
    *file = -1;
    ssize_t received;
    do {
        received = recvmsg(worker->loop->daemon, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    if (received <= 0) {
        return false;
    }
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(file, CMSG_DATA(header), sizeof(int));
    }
    if (received != sizeof(*piece) || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        *piece = (struct fgv_piece){0};
    }
    return true;
}

/* What is wrong with a piece, NULL: nothing. */
static const char *check(const struct fgv_window *window, const struct fgv_piece *piece, int file)
{
    struct stat status;
    if (!fgv_window_is_sound(piece->window_bytes, piece->bytes) || piece->bytes == 0 ||
        (window->bytes != 0 && window->bytes != piece->window_bytes)) {
        return "is of no window, or of another one";
    }
    if (piece->offset != window->mapped_bytes || piece->bytes > piece->window_bytes - piece->offset ||
        (piece->offset == 0 && piece->bytes < fgv_window_front_bytes(piece->window_bytes))) {
        return "does not belong behind those that are mapped";
    }
    if (file < 0 || fstat(file, &status) != 0 || (uint64_t)status.st_size < piece->bytes ||
        (fcntl(file, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_WRITE)) != F_SEAL_SHRINK) {
        return "has no memory, or such that may go away";
    }
    return NULL;
}

/* Keeps the addresses of the whole window, so that whatever is mapped later stays out of them. */
static bool reserve(struct fgw_worker *worker, uint64_t bytes)
{
    struct fgv_window *window = &worker->region.window;
    uint8_t *wanted = worker->region.base + worker->region.region_bytes;
    void *placed =
        mmap(wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (placed != wanted) {
        if (placed != MAP_FAILED) {
            munmap(placed, bytes);
        }
        return false;
    }
    window->owners = (_Atomic uint16_t *)wanted;
    window->bytes = bytes;
    return true;
}

static bool map(struct fgw_worker *worker, const struct fgv_piece *piece, int file)
{
    struct fgv_window *window = &worker->region.window;
    if (window->bytes == 0 && !reserve(worker, piece->window_bytes)) {
        return false;
    }
    void *wanted = worker->region.base + worker->region.region_bytes + piece->offset;
    if (mmap(wanted, piece->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != wanted) {
        return false;
    }
    atomic_store_explicit(&window->mapped_bytes, piece->offset + piece->bytes, memory_order_relaxed);
    return true;
}

CUresult fgw_serve_window_map(struct fgw_worker *worker, const struct fgw_request *request, void *reply)
{
    const struct fgv_request_window_map *fixed = request->fixed;
    struct fgv_reply_window_map *mapped = reply;
    const struct fgv_window *window = &worker->region.window;
    struct fgv_piece piece;
    int file;
    while (window->mapped_bytes < fixed->needed_bytes && receive(worker, &piece, &file)) {
        const char *wrong = check(window, &piece, file);
        if (wrong || !map(worker, &piece, file)) {
            fgw_log("a piece of the window %s", wrong ? wrong : "cannot be mapped");
        }
        if (file >= 0) {
            close(file);
        }
    }
    mapped->mapped_bytes = window->mapped_bytes;
    return CUDA_SUCCESS;
}
