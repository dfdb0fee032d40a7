/*
 * What kernels print. The driver writes it to this process's standard output, so descriptor 1 of a worker is an
 * anonymous file: the driver never blocks on it, whatever the guest does. After each synchronisation the worker looks
 * whether the file has grown and tells the guest, whose library fetches the text (output.c) and prints it there.
 *
 * Wrong when: a guest prints without ever fetching. What is beyond the limit is then dropped.
 */
#define _GNU_SOURCE
#include "client/printing.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/count.h"
#include "client/state.h"
#include "page/layout.h"

#define FGW_OUTPUT_MAX_BYTES (64 << 20)

_Atomic uint32_t fgw_nr_printing;

void fgw_printing_note_image(struct fgw_worker *worker, const uint8_t *image, size_t bytes)
{
    if (worker->printing.is_certain) {
        return;
    }
    /* First: whoever finds that it is silent may do so before this returns. */
    atomic_fetch_add_explicit(&fgw_nr_printing, 1, memory_order_relaxed);
    int32_t printing = worker->printing.inspector ? worker->printing.inspector(image, bytes, fgw_capability_of(worker))
                                                  : FGW_MAY_PRINT;
    worker->printing.is_certain = printing == FGW_MAY_PRINT;
    if (printing == FGW_PRINTS_NOT) {
        fgw_image_is_silent();
    }
}

void fgw_image_is_silent(void)
{
    /* relaxed: nothing else was written that the loop reads */
    atomic_fetch_sub_explicit(&fgw_nr_printing, 1, memory_order_relaxed);
}

bool fgw_printing_open(struct fgw_worker *worker)
{
    fflush(stdout);
    int file = memfd_create("kernel-output", MFD_CLOEXEC);
    if (file < 0) {
        return false;
    }
    bool is_open = fcntl(file, F_SETFL, O_APPEND) == 0 && dup2(file, STDOUT_FILENO) == STDOUT_FILENO;
    close(file);
    worker->printing.file = is_open ? STDOUT_FILENO : -1;
    return is_open;
}

void fgw_printing_check(struct fgw_worker *worker)
{
    struct stat status;
    if (worker->printing.file < 0) {
        return;
    }
    fflush(stdout);
    if (fstat(worker->printing.file, &status) != 0 || (uint64_t)status.st_size <= worker->printing.read_bytes) {
        return;
    }
    if (status.st_size > FGW_OUTPUT_MAX_BYTES && ftruncate(worker->printing.file, FGW_OUTPUT_MAX_BYTES) == 0) {
        fgw_count(&worker->slot->nr_refused, 1);
    }
    atomic_store_explicit(&worker->client->output_pending, 1, memory_order_release);
}

void fgw_printing_fetched(struct fgw_worker *worker, uint64_t bytes, bool is_all)
{
    struct fgw_printing *printing = &worker->printing;
    printing->read_bytes += bytes;
    if (is_all) {
        atomic_store_explicit(&worker->client->output_pending, 0, memory_order_release);
        if (printing->read_bytes != 0 && ftruncate(printing->file, 0) == 0) {
            printing->read_bytes = 0;
        }
    }
}

void fgw_worker_set_inspector(struct fgw_worker *worker, fgw_inspector_fn inspector)
{
    worker->printing.inspector = inspector;
}
