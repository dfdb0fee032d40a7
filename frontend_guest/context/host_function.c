/*
 * Host functions and the thread that runs them: see host_function.h.
 *
 * A node of a graph has the number of its function; a graph, a clone of it and what is instantiated of it hold on to
 * the number as they do to user objects, and the last of them gives it up.
 *
 * Wrong when: no thread can be made (base/thread.h): CUDA_ERROR_NOT_SUPPORTED. When there is no memory for a graph's
 * reference: the function is then kept for ever.
 */
#include "context/host_function.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"
#include "call/call.h"
#include "context/capture_rules.h"
#include "context/stream.h"
#include "cuda_api/graph_calls.h"
#include "cuda_api/prototypes.h"
#include "region/client.h"

struct function {
    uint64_t number; /* the place in the table and, above it, how often that was used before; 0: free */
    CUhostFn function;
    CUstreamCallback callback;
    CUstream stream; /* of a callback */
    uint64_t wire;   /* the stream that it was put into; of a graph's 0 */
    void *data;
    uint32_t nr_kept;              /* by graphs; 0: it is run once */
    void (*forgotten)(void *data); /* NULL, or called when no graph keeps it any more */
    uint32_t next_free;
};

#define PLACE_BITS 32
#define NO_PLACE   UINT32_MAX

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct function *table;
static uint32_t nr_places;
static uint32_t first_free = NO_PLACE;
static bool is_running; /* one of a stream's */
static uint64_t running_in;

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_started;
static struct fgv_response *mailbox;
static _Atomic uint32_t thread_id;

uint32_t fgv_host_function_thread(void)
{
    return atomic_load_explicit(&thread_id, memory_order_relaxed);
}

static bool table_grow(void)
{
    uint32_t nr = nr_places == 0 ? 64 : nr_places * 2;
    struct function *grown = nr > nr_places ? realloc(table, nr * sizeof(*table)) : NULL;
    if (!grown) {
        return false;
    }
    for (uint32_t i = nr_places; i < nr; i++) {
        grown[i] = (struct function){.next_free = i + 1 < nr ? i + 1 : NO_PLACE};
    }
    first_free = nr_places;
    table = grown;
    nr_places = nr;
    return true;
}

/* The same function with the same data, that graphs have; NULL when none do. */
static struct function *kept_find(const struct function *what)
{
    for (uint32_t i = 0; what->nr_kept != 0 && i < nr_places; i++) {
        if (table[i].nr_kept != 0 && table[i].function == what->function && table[i].data == what->data) {
            return &table[i];
        }
    }
    return NULL;
}

static struct function *place_take(const struct function *what)
{
    static uint64_t nr_taken;
    if (first_free == NO_PLACE && !table_grow()) {
        return NULL;
    }
    uint32_t place = first_free;
    first_free = table[place].next_free;
    table[place] = *what;
    table[place].number = (uint64_t)place | ++nr_taken << PLACE_BITS;
    return &table[place];
}

static CUresult keep(const struct function *what, uint64_t *number)
{
    pthread_mutex_lock(&table_lock);
    struct function *place = kept_find(what);
    if (place) {
        place->nr_kept++;
    } else {
        place = place_take(what);
    }
    if (place) {
        *number = place->number;
    }
    pthread_mutex_unlock(&table_lock);
    return place ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The function of this number, which is forgotten if it was to run once, or if this drops it for the last time. */
static bool take(uint64_t number, bool is_dropped, struct function *what)
{
    uint32_t place = (uint32_t)number;
    pthread_mutex_lock(&table_lock);
    bool is_found = number != 0 && place < nr_places && table[place].number == number;
    if (is_found) {
        *what = table[place];
        if (!is_dropped) {
            is_running = what->nr_kept == 0;
            running_in = what->wire;
        }
        table[place].nr_kept -= is_dropped && what->nr_kept != 0;
        if (table[place].nr_kept == 0) {
            table[place] = (struct function){.next_free = first_free};
            first_free = place;
        }
    }
    pthread_mutex_unlock(&table_lock);
    if (is_found && is_dropped && what->nr_kept <= 1 && what->forgotten) {
        what->forgotten(what->data);
    }
    return is_found;
}

bool fgv_host_function_find(uint64_t number, CUDA_HOST_NODE_PARAMS *params)
{
    uint32_t place = (uint32_t)number;
    pthread_mutex_lock(&table_lock);
    bool is_found = number != 0 && place < nr_places && table[place].number == number && table[place].nr_kept != 0;
    if (is_found) {
        *params = (CUDA_HOST_NODE_PARAMS){.fn = table[place].function, .userData = table[place].data};
    }
    pthread_mutex_unlock(&table_lock);
    return is_found;
}

bool fgv_host_function_is_ahead(uint64_t stream)
{
    pthread_mutex_lock(&table_lock);
    bool is_ahead = is_running && running_in == stream;
    for (uint32_t i = 0; i < nr_places && !is_ahead; i++) {
        is_ahead = table[i].number != 0 && table[i].nr_kept == 0 && table[i].wire == stream;
    }
    pthread_mutex_unlock(&table_lock);
    return is_ahead;
}

static bool is_served(void *unused, uint32_t nr_rounds)
{
    (void)unused;
    (void)nr_rounds;
    return atomic_load_explicit(&fgv_guest.client->state, memory_order_acquire) == FGV_CLIENT_READY;
}

static void run(const struct fgv_post *post)
{
    struct function what;
    if (!take(post->function, false, &what)) {
        return;
    }
    fgv_thread.is_called = 1;
    if (what.callback) {
        what.callback(what.stream, (CUresult)post->status, what.data);
    } else {
        what.function(what.data);
    }
    fgv_thread.is_called = 0;
    pthread_mutex_lock(&table_lock);
    is_running = false;
    pthread_mutex_unlock(&table_lock);
}

static void *functions_run(void *unused)
{
    (void)unused;
    const struct fgv_spin never = {.most_ns = 0};
    atomic_store_explicit(&thread_id, fgv_thread_id(), memory_order_relaxed);
    while (fgv_slot_wait(&mailbox->state, &fgv_guest.region, &never, is_served, NULL)) {
        const struct fgv_post post = *(const struct fgv_post *)(const void *)mailbox->payload;
        run(&post);
        fgv_call_work_follows();
        /* release: what the function wrote is seen by whatever goes on now */
        atomic_store_explicit(&mailbox->state, FGV_SLOT_WAITING, memory_order_release);
        if (fgv_guest.region.wake == FGV_WAKE_FUTEX) {
            syscall(SYS_futex, &mailbox->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        }
    }
    return NULL; /* nobody will come any more */
}

/* Opens the mailbox and makes the thread. */
static CUresult start_locked(void)
{
    if (!mailbox) {
        struct fgv_call call;
        int32_t slot = fgv_free_set_take(&fgv_guest.free_responses, 0);
        if (slot < 0) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        atomic_store_explicit(&fgv_guest.responses[slot].state, FGV_SLOT_WAITING, memory_order_relaxed);
        struct fgv_request_host_mailbox *request =
            fgv_call_begin_for(&call, FGV_CALL_host_mailbox, sizeof(*request), 0, 0);
        if (!request) {
            fgv_free_set_give(&fgv_guest.free_responses, (uint32_t)slot);
            return call.error;
        }
        *request = (struct fgv_request_host_mailbox){.slot = (uint32_t)slot};
        mailbox = &fgv_guest.responses[slot];
        fgv_call_post(&call);
    }
    return fgv_thread_make(functions_run, NULL) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult start(void)
{
    CUresult result = fgv_call_allowed();
    if (result != CUDA_SUCCESS || atomic_load_explicit(&is_started, memory_order_acquire)) {
        return result;
    }
    pthread_mutex_lock(&starting);
    if (!atomic_load_explicit(&is_started, memory_order_relaxed)) {
        result = start_locked();
        atomic_store_explicit(&is_started, result == CUDA_SUCCESS, memory_order_release);
    }
    pthread_mutex_unlock(&starting);
    return result;
}

/* ---- in graphs, which run them at every launch ---- */

CUresult fgv_host_function_keep(CUhostFn function, void *data, void (*forgotten)(void *data), uint64_t *number)
{
    CUresult result = start();
    const struct function what = {.function = function, .data = data, .nr_kept = 1, .forgotten = forgotten};
    return result == CUDA_SUCCESS ? keep(&what, number) : result;
}

void fgv_host_function_drop(uint64_t number)
{
    struct function what;
    take(number, true, &what);
}

static void function_drop(void *number)
{
    fgv_host_function_drop((uint64_t)(uintptr_t)number);
}

void fgv_host_function_own(uint64_t owner, uint64_t number)
{
    void *value = (void *)(uintptr_t)number;
    CUuserObject object;
    if (fgv_user_object_is_kept(owner, function_drop, value)) {
        fgv_host_function_drop(number);
        return;
    }
    if (cuUserObjectCreate(&object, value, function_drop, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) == CUDA_SUCCESS) {
        cuGraphRetainUserObject((CUgraph)(uintptr_t)owner, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    }
}

bool fgv_host_function_is_owned(uint64_t owner, bool (*is_one)(uint64_t number))
{
    return fgv_user_object_is_any(owner, function_drop, is_one);
}

CUresult fgv_host_function_capture(uint64_t stream, uint64_t number, enum fgv_host_node kind)
{
    struct fgv_call call;
    struct fgv_reply_capture_host_function reply;
    struct fgv_request_capture_host_function *request =
        fgv_call_begin(&call, FGV_CALL_capture_host_function, sizeof(*request), 0);
    if (!request) {
        fgv_host_function_drop(number);
        return call.error;
    }
    *request = (struct fgv_request_capture_host_function){.stream = stream, .function = number, .kind = (uint32_t)kind};
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result == CUDA_SUCCESS) {
        fgv_host_function_own(reply.root, number);
    } else {
        fgv_host_function_drop(number);
    }
    return result;
}

static CUresult put_into_graph(uint64_t stream, CUhostFn function, void *data)
{
    uint64_t number;
    CUresult result = fgv_host_function_keep(function, data, NULL, &number);
    return result == CUDA_SUCCESS ? fgv_host_function_capture(stream, number, FGV_HOST_NODE_PROGRAM) : result;
}

/* ---- in streams, which run them once ---- */

/* Begins the call that puts the function into its stream, and fills what both kinds have in common. */
static void *put_begin(struct fgv_call *call, uint16_t call_number, uint32_t request_bytes, const struct function *what,
                       uint64_t *number)
{
    call->error = start();
    if (call->error == CUDA_SUCCESS) {
        call->error = keep(what, number);
    }
    if (call->error != CUDA_SUCCESS) {
        return NULL;
    }
    void *request = fgv_call_begin(call, call_number, request_bytes, 0);
    if (!request) {
        fgv_host_function_drop(*number);
    }
    return request;
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    CUresult allowed = fgv_call_allowed();
    if (allowed != CUDA_SUCCESS || !fn) {
        return allowed != CUDA_SUCCESS ? allowed : CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t stream = fgv_stream_wire(hStream);
    if (stream == FGV_STREAM_INVALID) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (fgv_capture_is_active(stream)) {
        return put_into_graph(stream, fn, userData);
    }
    struct fgv_call call;
    uint64_t number;
    const struct function what = {.function = fn, .wire = stream, .data = userData};
    struct fgv_request_cuLaunchHostFunc *request =
        put_begin(&call, FGV_CALL_cuLaunchHostFunc, sizeof(*request), &what, &number);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuLaunchHostFunc){.stream = stream, .function = number};
    return fgv_call_post(&call);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
    CUresult allowed = fgv_call_allowed();
    if (allowed != CUDA_SUCCESS || !callback || flags != 0) {
        return allowed != CUDA_SUCCESS ? allowed : CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t stream = fgv_stream_wire(hStream);
    if (stream == FGV_STREAM_INVALID) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (fgv_capture_is_active(stream)) {
        return fgv_capture_break(stream);
    }
    struct fgv_call call;
    uint64_t number;
    const struct function what = {.callback = callback, .stream = hStream, .wire = stream, .data = userData};
    struct fgv_request_cuStreamAddCallback *request =
        put_begin(&call, FGV_CALL_cuStreamAddCallback, sizeof(*request), &what, &number);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuStreamAddCallback){.stream = stream, .function = number};
    /* Waited for: a callback that CUDA takes is called, even if work before it fails a moment later. */
    CUresult result = fgv_call_wait(&call, NULL, 0);
    if (result != CUDA_SUCCESS) {
        fgv_host_function_drop(number);
    }
    return result;
}
