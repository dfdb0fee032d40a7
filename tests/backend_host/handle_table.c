/* The table of handles by itself, for test_handles.py: streams that capture, and the graphs that go with them. It is
 * included and not linked, so that numbers can be chosen by where they stand. */
#include <string.h>

#include "client/handles.c"

#define HOT_PLACES 4u /* at either end of the table: entries there go round its end */

static struct fgw_worker worker;

static CUresult attach_stream(struct fgw_worker *at, struct fgw_handle *handle)
{
    struct fgw_stream *stream = calloc(1, sizeof(*stream));
    stream->context = at->current;
    stream->native = handle->native;
    handle->object = stream;
    return CUDA_SUCCESS;
}

static void release_stream(struct fgw_worker *at, const struct fgw_handle *handle)
{
    struct fgw_stream *stream = handle->object;
    if (stream->is_capture_origin) {
        fgw_worker_unbind(at, FGV_HANDLE_GRAPH, stream->capture_graph);
    }
    free(stream);
}

static uint64_t gone[64];
static uint32_t nr_gone;

static void note_gone(struct fgw_worker *at, const struct fgw_handle *handle)
{
    (void)at;
    gone[nr_gone++ % 64] = handle->number;
}

static const struct fgw_kind kinds[FGW_NR_KINDS] = {
    [FGV_HANDLE_STREAM] = {.is_of_context = true, .attach = attach_stream, .release = release_stream},
    [FGV_HANDLE_EVENT] = {.is_of_context = true},
    [FGV_HANDLE_GRAPH] = {.is_found_by_native = true},
    [FGV_HANDLE_CONTEXT] = {.release = note_gone},
    [FGV_HANDLE_MODULE] = {.is_of_context = true, .release = note_gone},
    [FGV_HANDLE_FUNCTION] = {.is_of_context = true, .release = note_gone},
    [FGV_HANDLE_LIBRARY] = {.release = note_gone},
};

static struct fgw_context contexts[2];

bool begin(void)
{
    free(worker.handles.places);
    free(worker.handles.entries);
    worker = (struct fgw_worker){.current = &contexts[0]};
    nr_gone = 0;
    for (uint8_t i = 0; i < 2; i++) {
        contexts[i] = (struct fgw_context){.handle = 100u + i, .home = i + 1};
    }
    return fgw_handles_init(&worker, kinds);
}

/* A context of the two is current from now on. */
void enter(uint32_t place)
{
    worker.current = &contexts[place];
}

void drop_context(uint32_t place)
{
    fgw_handles_drop_context(&worker, &contexts[place]);
}

bool bind_under(uint8_t kind, uint64_t number, uint8_t above_kind, uint64_t above)
{
    return fgw_worker_bind_under(&worker, kind, number, (void *)(uintptr_t)number, above_kind, above) == CUDA_SUCCESS;
}

/* What was released, the first first; returns how many. */
uint32_t tell_gone(uint64_t *numbers)
{
    memcpy(numbers, gone, sizeof(gone));
    return nr_gone;
}

/* The longest run of taken places: all of it is walked past by who looks for a number that belongs before it. */
uint32_t longest_run(void)
{
    uint32_t longest = 0, run = 0;
    for (uint32_t place = 0; place <= worker.handles.mask; place++) {
        run = worker.handles.places[place] != 0 ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    return longest;
}

/* The next number from `from` on that stands in the first or the last places of the first table. */
uint64_t hot_number(uint8_t kind, uint64_t from)
{
    const uint32_t mask = 1023;
    uint64_t number = from;
    while (((hash(&worker.handles, number, kind) + HOT_PLACES) & mask) >= 2 * HOT_PLACES) {
        number++;
    }
    return number;
}

bool bind_number(uint8_t kind, uint64_t number)
{
    return fgw_worker_bind(&worker, kind, number, (void *)(uintptr_t)number) == CUDA_SUCCESS;
}

/* So many, numbered from `first` on; how many of them are bound. */
uint32_t bind_run(uint8_t kind, uint64_t first, uint32_t nr)
{
    uint32_t i = 0;
    while (i < nr && bind_number(kind, first + i)) {
        i++;
    }
    return i;
}

/* The stream's capture makes this graph, which is bound as the worker binds its own. */
bool bind_captured(uint64_t stream, uint64_t graph)
{
    struct fgw_stream *at = fgw_handle_find(&worker, FGV_HANDLE_STREAM, stream).object;
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
    const struct fgw_handle handle = fgw_handle_find(&worker, kind, number);
    return handle.number == number && handle.native == (void *)(uintptr_t)number;
}

uint32_t nr_bound(void)
{
    return worker.handles.nr;
}

/* What is known of a handle before others are bound, and what is changed of it afterwards. */
bool copy_stays(uint8_t kind, uint64_t number, uint64_t first, uint32_t nr)
{
    static int object;
    const struct fgw_handle before = fgw_handle_find(&worker, kind, number);
    const bool has_bound = bind_run(kind, first, nr) == nr;
    fgw_handle_hang(&worker, kind, number, &object);
    fgw_handle_charge(&worker, kind, number, 7);
    fgw_handle_put_behind(&worker, kind, number, 8);
    const struct fgw_handle after = fgw_handle_find(&worker, kind, number);
    const bool is_changed =
        after.object == &object && after.taken_bytes == 7 && after.is_charged && after.behind_host == 8;
    fgw_handle_hang(&worker, kind, number, NULL);
    return has_bound && is_changed && before.number == number && before.native == (void *)(uintptr_t)number &&
           !before.object;
}
