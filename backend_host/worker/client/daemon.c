/* The socket to the daemon: see daemon.h. A message of a size that none has is passed over. */
#define _GNU_SOURCE
#include "client/daemon.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "client/piece.h"

#define MOST_BYTES 64u /* longer than any message, so that one that is too long is seen to be */

static void close_all(const int *files, uint32_t nr_files)
{
    for (uint32_t i = 0; i < nr_files; i++) {
        close(files[i]);
    }
}

CUresult fgw_daemon_tell(struct fgw_worker *worker, const struct fgw_shelf_message *message, const int *files,
                         uint32_t nr_files)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FGW_MAX_SHARED_FILES * sizeof(int))];
    struct iovec bytes = {.iov_base = (void *)message, .iov_len = sizeof(*message)};
    struct msghdr head = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (nr_files != 0) {
        head.msg_control = control;
        head.msg_controllen = CMSG_SPACE(nr_files * sizeof(int));
        memset(control, 0, head.msg_controllen);
        *CMSG_FIRSTHDR(&head) = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(nr_files * sizeof(int))};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&head)), files, nr_files * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(worker->daemon.socket, &head, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent == (ssize_t)sizeof(*message)) {
        return CUDA_SUCCESS;
    }
    return errno == EAGAIN || errno == ETOOMANYREFS ? CUDA_ERROR_NOT_READY : CUDA_ERROR_OPERATING_SYSTEM;
}

/* Receives one message with its descriptors. Its length, 0: none is there, or the daemon is gone. */
static size_t receive(struct fgw_worker *worker, uint8_t *message, int *files, uint32_t *nr_files)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FGW_MAX_SHARED_FILES * sizeof(int))];
    struct iovec bytes = {.iov_base = message, .iov_len = MOST_BYTES};
    struct msghdr head = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    *nr_files = 0;
    ssize_t received;
    do {
        received = recvmsg(worker->daemon.socket, &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    if (received <= 0) {
        return 0;
    }
    const struct cmsghdr *rights = CMSG_FIRSTHDR(&head);
    if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
        *nr_files = (uint32_t)((rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(files, CMSG_DATA(rights), *nr_files * sizeof(int));
    }
    return (size_t)received;
}

static void forget(struct fgw_found *found)
{
    close_all(found->files, found->nr_files);
    found->nr_files = 0;
    found->is_there = false;
}

void fgw_daemon_forget(struct fgw_worker *worker)
{
    forget(&worker->daemon.found);
}

const struct fgw_found *fgw_daemon_page(const struct fgw_worker *worker)
{
    return worker->daemon.page.is_there ? &worker->daemon.page : NULL;
}

void fgw_daemon_forget_page(struct fgw_worker *worker)
{
    forget(&worker->daemon.page);
}

/* An answer to a question before the last one takes the place of none. */
static void keep(struct fgw_found *found, const struct fgw_shelf_message *message, const int *files, uint32_t nr_files)
{
    forget(found);
    found->is_there = true;
    found->key = message->key;
    found->bytes = message->bytes;
    found->nr_files = nr_files;
    memcpy(found->files, files, nr_files * sizeof(int));
}

bool fgw_daemon_read(struct fgw_worker *worker)
{
    uint8_t bytes[MOST_BYTES];
    int files[FGW_MAX_SHARED_FILES + 1]; /* the padding of the room for them may hold one more */
    uint32_t nr_files;
    struct fgw_shelf_message message;
    struct fgv_piece piece;
    const size_t received = receive(worker, bytes, files, &nr_files);
    if (received == 0) {
        return false;
    }
    if (received == sizeof(message) && nr_files <= FGW_MAX_SHARED_FILES) {
        memcpy(&message, bytes, sizeof(message));
        if (message.word == FGW_SHELF_FOUND || message.word == FGW_SHELF_PAGE) {
            keep(message.word == FGW_SHELF_PAGE ? &worker->daemon.page : &worker->daemon.found, &message, files,
                 nr_files);
            return true;
        }
    }
    if (received == sizeof(piece)) {
        memcpy(&piece, bytes, sizeof(piece));
        fgw_piece_take(worker, &piece, nr_files == 1 ? files[0] : -1);
    } else {
        fgw_log("the daemon said what no worker understands");
    }
    close_all(files, nr_files);
    return true;
}
