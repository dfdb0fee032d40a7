/*
 * What kernels printed comes to standard output where CUDA brings it: when a call that waited for the device returns.
 * What the program itself printed before stands before it, so its buffer is flushed first. What an assertion said comes
 * to standard error.
 */
#include "call/output.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "call/call.h"
#include "call/chunks.h"
#include "region/client.h"

static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;

static void write_all(int fd, const uint8_t *bytes, size_t nr_bytes)
{
    while (nr_bytes > 0) {
        ssize_t written = write(fd, bytes, nr_bytes);
        if (written <= 0) {
            return; /* the program has closed it: it is lost, as the program's own words are */
        }
        bytes += written;
        nr_bytes -= (size_t)written;
    }
}

/* One chunk full. True when there is more. It needs no context: what a kernel printed may outlive its own. */
static bool fetch_once(uint32_t chunk, uint32_t stream)
{
    struct fgv_call call;
    struct fgv_request_output_fetch *request = fgv_call_begin_for(&call, FGV_CALL_output_fetch, sizeof(*request), 0, 0);
    if (!request) {
        return false;
    }
    *request = (struct fgv_request_output_fetch){.chunk = chunk, .capacity = fgv_guest.chunk_bytes, .stream = stream};
    struct fgv_reply_output_fetch reply;
    if (fgv_call_wait(&call, &reply, sizeof(reply)) != CUDA_SUCCESS || reply.bytes > fgv_guest.chunk_bytes) {
        return false;
    }
    write_all(stream == 0 ? STDOUT_FILENO : STDERR_FILENO, fgv_chunk_memory(chunk), reply.bytes);
    return reply.more != 0;
}

void fgv_output_print(void)
{
    pthread_mutex_lock(&printing);
    uint32_t pending = atomic_exchange_explicit(&fgv_guest.client->output_pending, 0, memory_order_acq_rel);
    uint32_t chunk;
    if (pending != 0 && fgv_chunk_take(&chunk) == CUDA_SUCCESS) {
        fflush(stdout);
        for (uint32_t stream = 0; stream < 2; stream++) {
            while ((pending >> stream & 1) != 0 && fetch_once(chunk, stream)) {
                continue;
            }
        }
        fgv_chunk_give(chunk);
    }
    pthread_mutex_unlock(&printing);
}
