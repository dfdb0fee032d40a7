/* __managed__ variables: see managed_variable.h. */
#include "code/managed_variable.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/thread.h"
#include "call/call.h"
#include "call/chunks.h"
#include "call/work.h"
#include "context/context.h"
#include "copy/copy.h"
#include "cuda_api/prototypes.h"
#include "region/client.h"

#define PAGE_BYTES UINT64_C(4096)

struct variable {
    struct variable *next;
    uint64_t library;
    uint64_t address, bytes;
    uint8_t *known; /* what both had when they last agreed */
    uint8_t *fresh; /* room for what comes from the device */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct variable *variables;
static uint64_t context; /* in which they are looked after */
static CUstream stream;  /* of its own: nothing else is waited for */
static bool is_touched;  /* the device may have written */

static uint8_t *shadow_of(const struct variable *variable)
{
    return (uint8_t *)(uintptr_t)variable->address;
}

static uint64_t first_page(const struct variable *variable)
{
    return variable->address & ~(PAGE_BYTES - 1);
}

static uint64_t end_page(const struct variable *variable)
{
    return (variable->address + variable->bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

static bool has_page(uint64_t page)
{
    const struct variable *variable = variables;
    while (variable && (page < first_page(variable) || page >= end_page(variable))) {
        variable = variable->next;
    }
    return variable != NULL;
}

/* Gives the pages of a variable that no other has, or takes them away. False: some are taken. */
static bool pages_change(const struct variable *variable, bool is_given)
{
    for (uint64_t page = first_page(variable); page < end_page(variable);) {
        uint64_t end = page;
        while (end < end_page(variable) && !has_page(end)) {
            end += PAGE_BYTES;
        }
        void *at = (void *)(uintptr_t)page;
        if (end > page && !is_given) {
            munmap(at, end - page);
        } else if (end > page && mmap(at, end - page, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != at) {
            return false;
        }
        page = end > page ? end : page + PAGE_BYTES;
    }
    return true;
}

static void variable_free(struct variable *variable)
{
    free(variable->known);
    free(variable->fresh);
    free(variable);
}

/* ---- to and from the device; the calls of this thread are then ours ---- */

static CUresult send(const struct variable *variable)
{
    const struct fgv_side to = {.address = variable->address, .kind = FGV_MEMORY_GLOBAL};
    const struct fgv_side from = {.address = (uint64_t)(uintptr_t)variable->known};
    return fgv_copy_range(&to, &from, variable->bytes, stream, false);
}

static CUresult fetch(const struct variable *variable)
{
    const struct fgv_side to = {.address = (uint64_t)(uintptr_t)variable->fresh};
    const struct fgv_side from = {.address = variable->address, .kind = FGV_MEMORY_GLOBAL};
    return fgv_copy_range(&to, &from, variable->bytes, stream, true);
}

/* What the device changed, where the program did not. */
static void merge(const struct variable *variable)
{
    uint8_t *shadow = shadow_of(variable);
    for (uint64_t i = 0; i < variable->bytes; i++) {
        if (variable->fresh[i] == variable->known[i]) {
            continue;
        }
        if (shadow[i] == variable->known[i]) {
            shadow[i] = variable->fresh[i];
        }
        variable->known[i] = variable->fresh[i];
    }
}

static void send_changes(void)
{
    bool is_sent = false;
    for (struct variable *variable = variables; variable; variable = variable->next) {
        if (memcmp(shadow_of(variable), variable->known, variable->bytes) == 0) {
            continue;
        }
        memcpy(variable->known, shadow_of(variable), variable->bytes);
        is_sent |= send(variable) == CUDA_SUCCESS;
    }
    if (is_sent) {
        cuStreamSynchronize(stream);
    }
}

static void fetch_all(void)
{
    for (struct variable *variable = variables; variable; variable = variable->next) {
        if (fetch(variable) == CUDA_SUCCESS) {
            merge(variable);
        }
    }
}

/* ---- when ---- */

static bool is_work(uint16_t call)
{
    return fgv_call_is_work(call) || call == FGV_CALL_cuMemcpyHtoDAsync_v2 || call == FGV_CALL_cuMemcpyDtoHAsync_v2;
}

static bool is_end_of_work(uint16_t call)
{
    switch (call) {
    case FGV_CALL_cuCtxSynchronize:
    case FGV_CALL_cuCtxSynchronize_v2:
    case FGV_CALL_cuStreamSynchronize:
    case FGV_CALL_cuStreamQuery:
    case FGV_CALL_cuEventSynchronize:
    case FGV_CALL_cuEventQuery:
    case FGV_CALL_cuMemcpyDtoHAsync_v2:
        return true;
    default:
        return false;
    }
}

/* Takes the lock if this thread's call is the program's, and calls of our own may be made in its place. */
static bool enter(void)
{
    if (fgv_thread.is_ours || atomic_load_explicit(&fgv_nr_captures, memory_order_relaxed) != 0) {
        return false;
    }
    fgv_thread.is_ours = 1;
    pthread_mutex_lock(&lock);
    if (stream && !fgv_context_find(fgv_context_public(context))) {
        stream = NULL; /* it went with its context */
    }
    if (!stream && fgv_thread.current != 0 && cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
        context = fgv_thread.current;
    }
    return true;
}

static void leave(void)
{
    pthread_mutex_unlock(&lock);
    fgv_thread.is_ours = 0;
}

void fgv_managed_variables_before(uint16_t call)
{
    if (!variables || !is_work(call) || !enter()) {
        return;
    }
    if (stream && context == fgv_thread.current) {
        send_changes();
        is_touched = true;
    }
    leave();
}

void fgv_managed_variables_after(uint16_t call)
{
    if (!variables || !is_end_of_work(call) || !enter()) {
        return;
    }
    if (is_touched && context == fgv_thread.current) {
        fetch_all();
        is_touched = false;
    }
    leave();
}

/* ---- the call ---- */

#define NAME_MAX_BYTES 4096u

static CUresult ask(uint64_t library, const char *name, uint64_t offset, uint32_t chunk,
                    struct fgv_reply_cuLibraryGetManaged *reply)
{
    const uint32_t name_bytes = (uint32_t)strnlen(name, NAME_MAX_BYTES);
    struct fgv_call call;
    struct fgv_request_cuLibraryGetManaged *request =
        fgv_call_begin_anywhere(&call, FGV_CALL_cuLibraryGetManaged, sizeof(*request), name_bytes);
    if (!request) {
        return call.error;
    }
    *request = (struct fgv_request_cuLibraryGetManaged){
        .library = library, .offset = offset, .name_bytes = name_bytes, .chunk = chunk};
    memcpy(call.payload, name, name_bytes);
    return fgv_call_wait(&call, reply, sizeof(*reply));
}

/* All of its bytes on the device, into `known`. The first piece lies in the chunk already. */
static CUresult read_all(struct variable *variable, const char *name, uint32_t chunk)
{
    struct fgv_reply_cuLibraryGetManaged reply;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; done < variable->bytes && result == CUDA_SUCCESS;) {
        const uint64_t left = variable->bytes - done;
        const uint64_t some_bytes = left < fgv_guest.chunk_bytes ? left : fgv_guest.chunk_bytes;
        if (done > 0) {
            result = ask(variable->library, name, done, chunk, &reply);
        }
        if (result == CUDA_SUCCESS) {
            memcpy(variable->known + done, fgv_chunk_memory(chunk), some_bytes);
        }
        done += some_bytes;
    }
    return result;
}

/* Gives the program the variable at the address that it has on the device. Under the lock. */
static CUresult add(struct variable *variable, const char *name, uint32_t chunk)
{
    for (const struct variable *other = variables; other; other = other->next) {
        if (other->address == variable->address) {
            return CUDA_ERROR_ALREADY_MAPPED;
        }
    }
    CUresult result = read_all(variable, name, chunk);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!pages_change(variable, true)) {
        fgv_log_cause(FGV_CAUSE_MANAGED_VARIABLE, "the address of the __managed__ variable %s is taken in this program",
                      name);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    memcpy(shadow_of(variable), variable->known, variable->bytes);
    variable->next = variables;
    variables = variable;
    atomic_fetch_add_explicit(&fgv_call_watch, FGV_WATCH_ONE, memory_order_relaxed);
    return CUDA_SUCCESS;
}

static CUresult variable_make(uint64_t library, const char *name, const struct fgv_reply_cuLibraryGetManaged *reply,
                              uint32_t chunk)
{
    struct variable *variable = calloc(1, sizeof(*variable));
    if (!variable) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *variable = (struct variable){.library = library,
                                  .address = reply->address,
                                  .bytes = reply->bytes,
                                  .known = malloc(reply->bytes + 1),
                                  .fresh = malloc(reply->bytes + 1)};
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    if (variable->known && variable->fresh) {
        result = add(variable, name, chunk);
    }
    pthread_mutex_unlock(&lock);
    if (result != CUDA_SUCCESS) {
        variable_free(variable);
    } else {
        fgv_memory_enter(reply->address, reply->bytes, FGV_MEMORY_GLOBAL, 0, library);
    }
    return result == CUDA_ERROR_ALREADY_MAPPED ? CUDA_SUCCESS : result;
}

/* The runtime asks before there is a context. */
CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    struct fgv_reply_cuLibraryGetManaged reply;
    uint32_t chunk;
    CUresult result = fgv_client_is_open();
    if (result == CUDA_SUCCESS) {
        result = fgv_handle_check(FGV_HANDLE_LIBRARY, (uint64_t)(uintptr_t)library);
    }
    if (result == CUDA_SUCCESS && (!name || (!dptr && !bytes))) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS && *name == '\0') {
        result = CUDA_ERROR_NOT_FOUND;
    }
    if (result == CUDA_SUCCESS) {
        result = fgv_chunk_take(&chunk);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = ask((uint64_t)(uintptr_t)library, name, 0, chunk, &reply);
    if (result == CUDA_SUCCESS) {
        result = variable_make((uint64_t)(uintptr_t)library, name, &reply, chunk);
    }
    fgv_chunk_give(chunk);
    if (result == CUDA_SUCCESS && dptr) {
        *dptr = reply.address;
    }
    if (result == CUDA_SUCCESS && bytes) {
        *bytes = reply.bytes;
    }
    return result;
}

void fgv_managed_variables_forget(uint64_t library)
{
    pthread_mutex_lock(&lock);
    for (struct variable **link = &variables; *link;) {
        struct variable *variable = *link;
        if (variable->library != library) {
            link = &variable->next;
            continue;
        }
        *link = variable->next;
        pages_change(variable, false);
        variable_free(variable);
        atomic_fetch_sub_explicit(&fgv_call_watch, FGV_WATCH_ONE, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
}
