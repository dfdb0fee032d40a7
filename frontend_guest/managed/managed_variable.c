/* __managed__ variables: see managed_variable.h. */
#include "managed/managed_variable.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "call/call.h"
#include "call/chunks.h"
#include "copy/copy.h"
#include "cuda_api/prototypes.h"
#include "ivshmem/heap.h"
#include "managed/granules.h"
#include "region/client.h"

static uint64_t first_page(const struct fgv_variable *variable)
{
    return variable->address / FGV_PAGE_BYTES * FGV_PAGE_BYTES;
}

static uint64_t end_page(const struct fgv_variable *variable)
{
    return (variable->address + variable->bytes + FGV_PAGE_BYTES - 1) / FGV_PAGE_BYTES * FGV_PAGE_BYTES;
}

static bool has_page_of(const struct fgv_area *area, const struct fgv_variable *variable)
{
    return area->variables && area->address < end_page(variable) && first_page(variable) < area->address + area->bytes;
}

static bool is_held(uint64_t page)
{
    const struct fgv_area *area = fgv_area_find(page);
    return area && area->variables;
}

/* Holds the pages that no other variable has. False: somebody has some of them; then none is held. */
static bool claim(const struct fgv_variable *variable)
{
    for (uint64_t page = first_page(variable); page < end_page(variable); page += FGV_PAGE_BYTES) {
        void *at = (void *)(uintptr_t)page;
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        if (is_held(page) || mmap(at, FGV_PAGE_BYTES, PROT_NONE, flags, -1, 0) == at) {
            continue;
        }
        while (page > first_page(variable)) {
            page -= FGV_PAGE_BYTES;
            if (!is_held(page)) {
                munmap((void *)(uintptr_t)page, FGV_PAGE_BYTES);
            }
        }
        return false;
    }
    return true;
}

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

/* Keeps those that are to be kept. */
static void sift(struct fgv_area *area, bool (*keeps)(const struct fgv_variable *variable, uint64_t what),
                 uint64_t what)
{
    size_t nr_kept = 0;
    for (size_t i = 0; i < area->nr_variables; i++) {
        if (keeps(&area->variables[i], what)) {
            area->variables[nr_kept++] = area->variables[i];
        } else {
            free(area->variables[i].name);
        }
    }
    area->nr_variables = nr_kept;
}

/* ---- in another context ---- */

static bool is_there(const struct fgv_variable *variable, uint64_t chunk)
{
    struct fgv_reply_cuLibraryGetManaged reply;
    return variable->name &&
           ask(variable->owner, variable->name, variable->bytes, (uint32_t)chunk, &reply) == CUDA_SUCCESS &&
           reply.address == variable->address && reply.bytes == variable->bytes;
}

/* Those that are not where they were are not looked after any more. */
static void check(struct fgv_area *area)
{
    uint32_t chunk;
    if (fgv_chunk_take(&chunk) != CUDA_SUCCESS) {
        return;
    }
    sift(area, is_there, chunk);
    area->is_doubtful = false;
    fgv_chunk_give(chunk);
}

/* ---- areas of them ---- */

/* Contents, variables and context of an area whose pages the new one has now. */
static bool take_over(struct fgv_area *area, struct fgv_area *old)
{
    const size_t nr = area->nr_variables + old->nr_variables;
    struct fgv_variable *grown = realloc(area->variables, nr * sizeof(*grown));
    if (!grown) {
        return false;
    }
    memcpy(grown + area->nr_variables, old->variables, old->nr_variables * sizeof(*grown));
    old->nr_variables = 0;
    area->variables = grown;
    area->nr_variables = nr;
    area->is_doubtful |= old->is_doubtful;
    memcpy(area->shadow + (old->address - area->address), old->shadow, old->bytes);
    if (old->stream && !area->stream) {
        fgv_area_adopt(area, old->context, old->context_handle);
    }
    fgv_granules_end(old);
    fgv_area_leave(old);
    return true;
}

/* An area for the variable and for those that have bytes in the same pages. */
static struct fgv_area *area_make(const struct fgv_variable *variable, bool *is_merged)
{
    uint64_t address = first_page(variable), end = end_page(variable);
    for (struct fgv_area *old = fgv_areas; old; old = old->next) {
        if (has_page_of(old, variable)) {
            fgv_granules_bring(old);
            address = old->address < address ? old->address : address;
            end = old->address + old->bytes > end ? old->address + old->bytes : end;
        }
    }
    struct fgv_area *area = fgv_area_make_at(address, end - address);
    if (!area) {
        return NULL;
    }
    area->check = check;
    for (struct fgv_area *old = area->next, *next; old; old = next) {
        next = old->next;
        if (has_page_of(old, variable)) {
            *is_merged = true;
            if (!take_over(area, old)) {
                return NULL; /* as good as without memory for anything */
            }
        }
    }
    struct fgv_variable *grown = realloc(area->variables, (area->nr_variables + 1) * sizeof(*grown));
    if (!grown) {
        return NULL;
    }
    grown[area->nr_variables] = *variable;
    grown[area->nr_variables].name = variable->name ? strdup(variable->name) : NULL;
    area->variables = grown;
    area->nr_variables++;
    return area;
}

static bool is_known(const struct fgv_variable *variable)
{
    const struct fgv_area *area = fgv_area_find(variable->address);
    for (size_t i = 0; area && i < area->nr_variables; i++) {
        if (area->variables[i].address == variable->address) {
            return true;
        }
    }
    return false;
}

/* Gives the program the variable, with these contents. */
static CUresult add(const struct fgv_variable *variable, const char *name, const uint8_t *contents)
{
    struct fgv_entered entered;
    bool is_merged = false;
    CUresult result = CUDA_SUCCESS;
    fgv_granules_enter(&entered);
    fgv_granules_open();
    if (is_known(variable)) {
        fgv_granules_leave(&entered);
        return CUDA_SUCCESS;
    }
    if (!claim(variable)) {
        fgv_log_cause(FGV_CAUSE_MANAGED_VARIABLE, "the address of the __managed__ variable %s is taken in this program",
                      name);
        result = CUDA_ERROR_NOT_SUPPORTED;
    } else {
        struct fgv_area *area = area_make(variable, &is_merged);
        if (area) {
            memcpy(area->shadow + (variable->address - area->address), contents, variable->bytes);
            fgv_granules_begin_given(area, is_merged);
        }
        result = area ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    fgv_granules_leave(&entered);
    if (result == CUDA_SUCCESS) {
        fgv_memory_enter(variable->address, variable->bytes, FGV_MEMORY_MANAGED, 0, variable->owner);
    }
    return result;
}

CUresult fgv_managed_variable_use(const struct fgv_variable *variable, const char *name)
{
    uint8_t *contents = malloc(variable->bytes + 1);
    if (!contents) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const struct fgv_side to = {.address = (uint64_t)(uintptr_t)contents};
    const struct fgv_side from = {.address = variable->address, .kind = FGV_MEMORY_DEVICE};
    CUresult result = fgv_copy_range(&to, &from, variable->bytes, NULL, true);
    if (result == CUDA_SUCCESS) {
        result = add(variable, name, contents);
    }
    free(contents);
    return result;
}

static bool is_anothers(const struct fgv_variable *variable, uint64_t owner)
{
    return variable->owner != owner;
}

static void forget(struct fgv_area *area, uint64_t owner)
{
    const bool had_some = area->nr_variables != 0;
    sift(area, is_anothers, owner);
    if (had_some && area->nr_variables == 0) {
        fgv_granules_end(area);
        fgv_area_drop(area);
    }
}

void fgv_managed_variables_forget(uint64_t owner)
{
    fgv_granules_each(forget, owner);
}

/* ---- the call ---- */

/* All of its bytes on the device. The first piece lies in the chunk already. */
static CUresult read_all(const struct fgv_variable *variable, const char *name, uint32_t chunk, uint8_t *contents)
{
    struct fgv_reply_cuLibraryGetManaged reply;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; done < variable->bytes && result == CUDA_SUCCESS;) {
        const uint64_t left = variable->bytes - done;
        const uint64_t some_bytes = left < fgv_guest.chunk_bytes ? left : fgv_guest.chunk_bytes;
        if (done > 0) {
            result = ask(variable->owner, name, done, chunk, &reply);
        }
        if (result == CUDA_SUCCESS) {
            memcpy(contents + done, fgv_chunk_memory(chunk), some_bytes);
        }
        done += some_bytes;
    }
    return result;
}

static CUresult variable_make(const struct fgv_variable *variable, const char *name, uint32_t chunk)
{
    uint8_t *contents = malloc(variable->bytes + 1);
    CUresult result = contents ? read_all(variable, name, chunk, contents) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = add(variable, name, contents);
    }
    free(contents);
    return result;
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
        const struct fgv_variable variable = {.address = reply.address,
                                              .bytes = reply.bytes,
                                              .owner = (uint64_t)(uintptr_t)library,
                                              .name = (char *)(uintptr_t)name};
        result = variable_make(&variable, name, chunk);
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
