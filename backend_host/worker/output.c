/*
 * What kernels print. The driver writes it to this process's standard output, so descriptor 1 of a worker is an
 * anonymous file: the driver never blocks on it, whatever the guest does. After each synchronisation the worker looks
 * whether the file has grown and tells the guest, whose library fetches the text and prints it there.
 *
 * Wrong when: a guest prints without ever fetching. What is beyond the limit is then dropped.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker.h"

#define FGV_OUTPUT_MAX_BYTES (64 << 20)

_Atomic uint32_t fgv_nr_printing;

void fgv_output_note_image(struct fgv_worker *worker, const uint8_t *image, size_t bytes)
{
    if (worker->has_printing) {
        return;
    }
    /* First: whoever finds that it is silent may do so before this returns. */
    atomic_fetch_add_explicit(&fgv_nr_printing, 1, memory_order_relaxed);
    int32_t printing = worker->inspector ? worker->inspector(image, bytes, fgv_capability_of(worker)) : FGV_MAY_PRINT;
    worker->has_printing = printing == FGV_MAY_PRINT;
    if (printing == FGV_PRINTS_NOT) {
        fgv_image_is_silent();
    }
}

void fgv_image_is_silent(void)
{
    /* relaxed: nothing else was written that the loop reads */
    atomic_fetch_sub_explicit(&fgv_nr_printing, 1, memory_order_relaxed);
}

bool fgv_output_open(struct fgv_worker *worker)
{
    fflush(stdout);
    int file = memfd_create("kernel-output", MFD_CLOEXEC);
    if (file < 0) {
        return false;
    }
    bool is_open = fcntl(file, F_SETFL, O_APPEND) == 0 && dup2(file, STDOUT_FILENO) == STDOUT_FILENO;
    close(file);
    worker->output = is_open ? STDOUT_FILENO : -1;
    return is_open;
}

void fgv_output_check(struct fgv_worker *worker)
{
    struct stat status;
    if (worker->output < 0) {
        return;
    }
    fflush(stdout);
    if (fstat(worker->output, &status) != 0 || (uint64_t)status.st_size <= worker->output_read_bytes) {
        return;
    }
    if (status.st_size > FGV_OUTPUT_MAX_BYTES && ftruncate(worker->output, FGV_OUTPUT_MAX_BYTES) == 0) {
        fgv_count(&worker->slot->nr_refused, 1);
    }
    atomic_store_explicit(&worker->client->output_pending, 1, memory_order_release);
}

CUresult fgv_serve_output_fetch(struct fgv_worker *worker, const struct fgv_request *request, void *reply)
{
    const struct fgv_request_output_fetch *fixed = request->fixed;
    struct fgv_reply_output_fetch *answer = reply;
    struct stat status;
    uint8_t *to = fgv_arena_chunk(worker, fixed->chunk);
    if (!to) {
        fgv_count(&worker->slot->nr_refused, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    fflush(stdout);
    if (worker->output < 0 || fstat(worker->output, &status) != 0) {
        return CUDA_SUCCESS;
    }
    uint64_t size_bytes = (uint64_t)status.st_size;
    uint64_t left_bytes = size_bytes > worker->output_read_bytes ? size_bytes - worker->output_read_bytes : 0;
    uint64_t room_bytes = fixed->capacity < worker->layout.chunk_bytes ? fixed->capacity : worker->layout.chunk_bytes;
    ssize_t got =
        pread(worker->output, to, left_bytes < room_bytes ? left_bytes : room_bytes, (off_t)worker->output_read_bytes);
    if (got > 0) {
        worker->output_read_bytes += (uint64_t)got;
        left_bytes -= (uint64_t)got;
        answer->bytes = (uint32_t)got;
    }
    answer->more = left_bytes < UINT32_MAX ? (uint32_t)left_bytes : UINT32_MAX;
    if (left_bytes == 0) {
        atomic_store_explicit(&worker->client->output_pending, 0, memory_order_release);
        if (worker->output_read_bytes != 0 && ftruncate(worker->output, 0) == 0) {
            worker->output_read_bytes = 0;
        }
    }
    return CUDA_SUCCESS;
}
