/*
 * What kernels print. The driver writes it to this process's standard output, and what a failed assertion says to its
 * standard error, so descriptors 1 and 2 of a worker are anonymous files: the driver never blocks on them, whatever the
 * guest does, and no guest writes the host's log. After each synchronisation the worker looks whether a file has grown
 * and tells the guest, whose library fetches the text (output.c) and prints it there. What the worker itself has to say
 * goes past descriptor 2 (log.h). softgpu says there, too, why an image does not load; that is for the host's operator
 * as well, and goes to the daemon's log beside.
 *
 * Wrong when: a guest prints without ever fetching. What is beyond the limit is then dropped. What libc says of a crash
 * of this process is lost with it: the daemon tells the status.
 */
#define _GNU_SOURCE
#include "client/printing.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/count.h"
#include "base/log.h"
#include "client/state.h"
#include "page/layout.h"

#define FGW_OUTPUT_MAX_BYTES (64 << 20)
/* Of one line of the log, which is cut at 400 (worker_log.py). */
#define FGW_LIBRARY_WORDS_BYTES 400u

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

static bool catch_up(struct fgw_printed *printed, int fd)
{
    int file = memfd_create("kernel-output", MFD_CLOEXEC);
    if (file < 0) {
        return false;
    }
    bool is_open = fcntl(file, F_SETFL, O_APPEND) == 0 && dup2(file, fd) == fd;
    close(file);
    printed->fd = is_open ? fd : 0;
    return is_open;
}

bool fgw_printing_open(struct fgw_worker *worker)
{
    fflush(stdout);
    return catch_up(&worker->printing.printed[0], STDOUT_FILENO);
}

int fgw_printing_open_errors(struct fgw_worker *worker)
{
    fflush(stderr);
    int own = fgw_log_apart();
    return own >= 0 && catch_up(&worker->printing.printed[1], STDERR_FILENO) ? own : -1;
}

static void check(struct fgw_worker *worker, uint32_t stream)
{
    const struct fgw_printed *printed = &worker->printing.printed[stream];
    struct stat status;
    if (printed->fd == 0 || fstat(printed->fd, &status) != 0 || (uint64_t)status.st_size <= printed->read_bytes) {
        return;
    }
    if (status.st_size > FGW_OUTPUT_MAX_BYTES && ftruncate(printed->fd, FGW_OUTPUT_MAX_BYTES) == 0) {
        fgw_count(&worker->slot->nr_refused, 1);
    }
    atomic_fetch_or_explicit(&worker->client->output_pending, 1u << stream, memory_order_release);
}

void fgw_printing_check(struct fgw_worker *worker)
{
    fflush(stdout);
    check(worker, 0);
    check(worker, 1);
}

uint64_t fgw_printing_said_bytes(const struct fgw_worker *worker)
{
    struct stat status;
    const int fd = worker->printing.printed[1].fd;
    return fd != 0 && fstat(fd, &status) == 0 ? (uint64_t)status.st_size : 0;
}

void fgw_printing_pass_on(struct fgw_worker *worker, uint64_t since_bytes)
{
    char words[FGW_LIBRARY_WORDS_BYTES];
    if (fgw_printing_said_bytes(worker) <= since_bytes) {
        return;
    }
    ssize_t got = pread(worker->printing.printed[1].fd, words, sizeof(words) - 1, (off_t)since_bytes);
    words[got > 0 ? got : 0] = '\0';
    words[strcspn(words, "\n")] = '\0';
    fgw_log("the device library says: %s", words);
    check(worker, 1);
}

void fgw_printing_fetched(struct fgw_worker *worker, uint32_t stream, uint64_t bytes, bool is_all)
{
    struct fgw_printed *printed = &worker->printing.printed[stream];
    printed->read_bytes += bytes;
    if (is_all) {
        atomic_fetch_and_explicit(&worker->client->output_pending, ~(1u << stream), memory_order_release);
        if (printed->read_bytes != 0 && ftruncate(printed->fd, 0) == 0) {
            printed->read_bytes = 0;
        }
    }
}

void fgw_worker_set_inspector(struct fgw_worker *worker, fgw_inspector_fn inspector)
{
    worker->printing.inspector = inspector;
}
