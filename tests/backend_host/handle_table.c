/* The table of handles by itself, for test_handles.py: streams that capture, and the graphs that go with them. It is
 * included and not linked, so that numbers can be chosen by where they stand. */
#include "client/handles.c"

#define HOT_PLACES 4u /* at either end of the table: entries there go round its end */

static struct fgv_worker worker;

struct fgv_stream *fgv_stream_new(struct fgv_context *context, CUstream native)
{
    struct fgv_stream *stream = calloc(1, sizeof(*stream));
    stream->context = context;
    stream->native = native;
    return stream;
}

static void release_stream(struct fgv_worker *at, const struct fgv_handle *handle)
{
    struct fgv_stream *stream = handle->object;
    if (stream->is_capture_origin) {
        fgv_worker_unbind(at, FGV_HANDLE_GRAPH, stream->capture_graph);
    }
    free(stream);
}

static const fgv_release releases[FGV_HANDLE_KINDS] = {[FGV_HANDLE_STREAM] = release_stream};

bool begin(void)
{
    static struct fgv_context context;
    free(worker.handles.places);
    worker = (struct fgv_worker){.current = &context};
    return fgv_handles_init(&worker, releases);
}

/* The next number from `from` on that stands in the first or the last places of the first table. */
uint64_t hot_number(uint8_t kind, uint64_t from)
{
    const uint32_t mask = 1023;
    uint64_t number = from;
    while (((hash(number, kind) + HOT_PLACES) & mask) >= 2 * HOT_PLACES) {
        number++;
    }
    return number;
}

bool bind_number(uint8_t kind, uint64_t number)
{
    return fgv_worker_bind(&worker, kind, number, (void *)(uintptr_t)number) == CUDA_SUCCESS;
}

/* The stream's capture makes this graph, which is bound as the worker binds its own. */
bool bind_captured(uint64_t stream, uint64_t graph)
{
    struct fgv_stream *at = fgv_handle_find(&worker, FGV_HANDLE_STREAM, stream)->object;
    at->is_capture_origin = true;
    at->capture_graph = graph;
    return bind_number(FGV_HANDLE_GRAPH, graph) && fgv_handle_remember_native(&worker, FGV_HANDLE_GRAPH, graph);
}

void unbind(uint8_t kind, uint64_t number)
{
    fgv_worker_unbind(&worker, kind, number);
}

bool is_bound(uint8_t kind, uint64_t number)
{
    const struct fgv_handle *handle = fgv_handle_find(&worker, kind, number);
    return handle && handle->native == (void *)(uintptr_t)number;
}

uint32_t nr_bound(void)
{
    return worker.handles.nr;
}
