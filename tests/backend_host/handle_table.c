/* The table of handles by itself, for test_handles.py: streams that capture, and the graphs that go with them. It is
 * included and not linked, so that numbers can be chosen by where they stand. */
#include "client/handles.c"

#define HOT_PLACES 4u /* at either end of the table: entries there go round its end */

static struct fgw_worker worker;

struct fgw_stream *fgw_stream_new(struct fgw_context *context, CUstream native)
{
    struct fgw_stream *stream = calloc(1, sizeof(*stream));
    stream->context = context;
    stream->native = native;
    return stream;
}

static void release_stream(struct fgw_worker *at, const struct fgw_handle *handle)
{
    struct fgw_stream *stream = handle->object;
    if (stream->is_capture_origin) {
        fgw_worker_unbind(at, FGV_HANDLE_GRAPH, stream->capture_graph);
    }
    free(stream);
}

static const fgw_release releases[FGV_HANDLE_KINDS] = {[FGV_HANDLE_STREAM] = release_stream};

bool begin(void)
{
    static struct fgw_context context;
    free(worker.handles.places);
    worker = (struct fgw_worker){.current = &context};
    return fgw_handles_init(&worker, releases);
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
    return fgw_worker_bind(&worker, kind, number, (void *)(uintptr_t)number) == CUDA_SUCCESS;
}

/* The stream's capture makes this graph, which is bound as the worker binds its own. */
bool bind_captured(uint64_t stream, uint64_t graph)
{
    struct fgw_stream *at = fgw_handle_find(&worker, FGV_HANDLE_STREAM, stream)->object;
    at->is_capture_origin = true;
    at->capture_graph = graph;
    return bind_number(FGV_HANDLE_GRAPH, graph) && fgw_handle_remember_native(&worker, FGV_HANDLE_GRAPH, graph);
}

void unbind(uint8_t kind, uint64_t number)
{
    fgw_worker_unbind(&worker, kind, number);
}

bool is_bound(uint8_t kind, uint64_t number)
{
    const struct fgw_handle *handle = fgw_handle_find(&worker, kind, number);
    return handle && handle->native == (void *)(uintptr_t)number;
}

uint32_t nr_bound(void)
{
    return worker.handles.nr;
}
