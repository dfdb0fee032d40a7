/*
 * What kernels printed comes to standard output where CUDA brings it: when a call that waited for the device returns.
 * What the program itself printed before stands before it, so its buffer is flushed first.
 */
#include "call/output.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/thread.h"
#include "call/call.h"
#include "call/chunks.h"
#include "region/client.h"

static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;

static void write_all(const uint8_t *bytes, size_t nr_bytes)
{
    while (nr_bytes > 0) {
        ssize_t written = write(STDOUT_FILENO, bytes, nr_bytes);
        if (written <= 0) {
            return; /* the program's standard output is closed: it is lost, as the program's own words are */
        }
        bytes += written;
        nr_bytes -= (size_t)written;
    }
}

/* One chunk full. True when there is more. */
static bool fetch_once(uint32_t chunk)
{
    struct fgv_call call;
    struct fgv_request_output_fetch *request =
        fgv_call_begin_for(&call, FGV_CALL_output_fetch, sizeof(*request), 0, fgv_thread.current);
    if (!request) {
        return false;
    }
    *request = (struct fgv_request_output_fetch){.chunk = chunk, .capacity = fgv_guest.chunk_bytes};
    struct fgv_reply_output_fetch reply;
    if (fgv_call_wait(&call, &reply, sizeof(reply)) != CUDA_SUCCESS || reply.bytes > fgv_guest.chunk_bytes) {
        return false;
    }
    write_all(fgv_chunk_memory(chunk), reply.bytes);
    return reply.more != 0;
}

void fgv_output_print(void)
{
    pthread_mutex_lock(&printing);
    if (atomic_exchange_explicit(&fgv_guest.client->output_pending, 0, memory_order_acq_rel) != 0) {
        fflush(stdout);
        uint32_t chunk;
        if (fgv_chunk_take(&chunk) == CUDA_SUCCESS) {
            while (fetch_once(chunk)) {
                continue;
            }
            fgv_chunk_give(chunk);
        }
    }
    pthread_mutex_unlock(&printing);
}
