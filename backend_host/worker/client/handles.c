/*
 * The guest's numbers and the driver's objects behind them. Nothing a guest sends is ever used as a pointer: a number
 * that is not in this table, or is there as another kind, is CUDA's error for a bad handle.
 *
 * Handles make a tree, below the client: a context has streams and modules, a module has functions. What goes takes
 * with it what is below it, the lowest and newest first. So nothing is released after what it was made of.
 *
 * A handle stands in one place of `entries` for as long as it lives, and is found through `places`, a hash table with
 * open addressing and linear probing; a removal there moves later ones back, so there are no tombstones to pile up.
 *
 * `entries` move when others are bound, so nobody outside has a pointer into them: what is asked comes as a copy, and
 * what is changed is changed by its number.
 *
 * Wrong when: a copy is kept across what may end the handle. Its number has to be looked up again.
 */
#include "client/handles.h"

#include <stdlib.h>
#include <sys/random.h>

#include "client/service.h"
#include "client/state.h"
#include "client/stream.h"

/* Beside a kind: an entry whose number is the driver's object, and which leads to the number of that. */
#define BY_NATIVE 0x40

#define FIRST_PLACES 1024u
#define CLIENT       0u

/* It is known by its index, which is its own until it goes. Index 0 is the client itself, whose handle is none. */
struct fgw_entry {
    struct fgw_handle handle;
    uint32_t above;        /* the index of what it goes with */
    uint32_t newest;       /* of all that go with it, 0: nothing does */
    uint32_t older, newer; /* beside it; `older` of a free index is the next free one */
};

/* Without a secret a guest finds thousands of numbers that meet, and each look then walks past all of them. Products
 * alone keep the order of numbers with equal distances: of 160 secrets one put hundreds of such in one row. The shifts
 * in between leave none. */
static uint32_t hash(const struct fgw_handles *handles, uint64_t number, uint8_t kind)
{
    const uint64_t *secret = handles->secret;
    uint64_t mixed = (number ^ secret[0]) * (secret[1] | 1);
    mixed ^= mixed >> 32;
    mixed = (mixed ^ secret[3] * kind) * (secret[2] | 1);
    mixed ^= mixed >> 32;
    return (uint32_t)(mixed * (secret[3] | 1) >> 32);
}

bool fgw_handles_init(struct fgw_worker *worker, const struct fgw_kind *kinds)
{
    worker->handles =
        (struct fgw_handles){.kinds = kinds, .mask = FIRST_PLACES - 1, .nr_entries = 1, .room = FIRST_PLACES / 2 + 1};
    struct fgw_handles *handles = &worker->handles;
    handles->places = calloc(FIRST_PLACES, sizeof(*handles->places));
    handles->entries = calloc(handles->room, sizeof(*handles->entries));
    return handles->places && handles->entries &&
           getrandom(handles->secret, sizeof(handles->secret), 0) == (ssize_t)sizeof(handles->secret);
}

static const struct fgw_kind *kind_of(const struct fgw_handles *handles, uint8_t kind)
{
    return &handles->kinds[kind & ~BY_NATIVE];
}

static uint32_t place_of(const struct fgw_handles *handles, uint8_t kind, uint64_t number)
{
    uint32_t place = hash(handles, number, kind) & handles->mask;
    while (handles->places[place] != 0 && (handles->entries[handles->places[place]].handle.number != number ||
                                           handles->entries[handles->places[place]].handle.kind != kind)) {
        place = (place + 1) & handles->mask;
    }
    return place;
}

static uint32_t index_of(const struct fgw_handles *handles, uint8_t kind, uint64_t number)
{
    return number != 0 ? handles->places[place_of(handles, kind, number)] : 0;
}

struct fgw_handle fgw_handle_find(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number)
{
    return worker->handles.entries[index_of(&worker->handles, (uint8_t)kind, number)].handle;
}

struct fgw_handle fgw_handle_above(struct fgw_worker *worker, const struct fgw_handle *handle)
{
    const struct fgw_handles *handles = &worker->handles;
    return handles->entries[handles->entries[index_of(handles, handle->kind, handle->number)].above].handle;
}

bool fgw_handle_next(struct fgw_worker *worker, enum fgv_handle_kind kind, uint32_t *at, struct fgw_handle *handle)
{
    const struct fgw_handles *handles = &worker->handles;
    while (++*at < handles->nr_entries) {
        *handle = handles->entries[*at].handle;
        if (handle->number != 0 && handle->kind == (uint8_t)kind) {
            return true;
        }
    }
    return false;
}

uint32_t fgw_handles_nr(const struct fgw_worker *worker, enum fgv_handle_kind kind)
{
    return worker->handles.nr_of[kind];
}

static void count(struct fgw_handles *handles, uint8_t kind, bool is_there)
{
    const uint32_t more = is_there ? 1 : UINT32_MAX;
    handles->nr += more;
    if ((kind & BY_NATIVE) == 0) {
        handles->nr_of[kind] += more;
    }
}

static uint32_t oldest_below(const struct fgw_handles *handles, uint32_t above)
{
    uint32_t index = handles->entries[above].newest;
    while (index != 0 && handles->entries[index].older != 0) {
        index = handles->entries[index].older;
    }
    return index;
}

bool fgw_handle_down(struct fgw_worker *worker, uint32_t *at, struct fgw_handle *handle)
{
    const struct fgw_handles *handles = &worker->handles;
    do {
        uint32_t next = oldest_below(handles, *at);
        while (next == 0 && *at != CLIENT) {
            next = handles->entries[*at].newer;
            *at = handles->entries[*at].above;
        }
        *at = next;
    } while ((handles->entries[*at].handle.kind & BY_NATIVE) != 0);
    *handle = handles->entries[*at].handle;
    return *at != CLIENT;
}

/* ---- coming ---- */

/* Twice as many places; the entries stay where they are. */
static bool widen(struct fgw_handles *handles)
{
    const uint32_t nr_places = (handles->mask + 1) * 2;
    uint32_t *places = calloc(nr_places, sizeof(*places));
    if (!places) {
        return false;
    }
    free(handles->places);
    handles->places = places;
    handles->mask = nr_places - 1;
    for (uint32_t i = 1; i < handles->nr_entries; i++) {
        const struct fgw_handle *handle = &handles->entries[i].handle;
        if (handle->number != 0) {
            handles->places[place_of(handles, handle->kind, handle->number)] = i;
        }
    }
    return true;
}

static bool lengthen(struct fgw_handles *handles)
{
    const uint32_t room = handles->room * 2;
    struct fgw_entry *entries = realloc(handles->entries, room * sizeof(*entries));
    if (entries) {
        handles->entries = entries;
        handles->room = room;
    }
    return entries != NULL;
}

static CUresult has_place(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number)
{
    struct fgw_handles *handles = &worker->handles;
    if (number <= 2 || index_of(handles, (uint8_t)kind, number) != 0) {
        return CUDA_ERROR_INVALID_HANDLE; /* 0, 1 and 2 name default streams */
    }
    if (handles->nr >= FGW_MAX_HANDLES || (handles->nr * 2 > handles->mask && !widen(handles)) ||
        (handles->free == 0 && handles->nr_entries == handles->room && !lengthen(handles))) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult fgw_worker_can_bind(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number)
{
    const struct fgw_kind *row = kind_of(&worker->handles, (uint8_t)kind);
    const CUresult result = has_place(worker, kind, number);
    return result == CUDA_SUCCESS && row->has_room && !row->has_room(worker) ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

static void link_below(struct fgw_handles *handles, uint32_t index, uint32_t above)
{
    struct fgw_entry *entry = &handles->entries[index];
    entry->above = above;
    entry->newer = 0;
    entry->older = handles->entries[above].newest;
    if (entry->older != 0) {
        handles->entries[entry->older].newer = index;
    }
    handles->entries[above].newest = index;
}

static CUresult add(struct fgw_worker *worker, struct fgw_handle handle, uint32_t above)
{
    struct fgw_handles *handles = &worker->handles;
    const struct fgw_kind *kind = kind_of(handles, handle.kind);
    CUresult result = has_place(worker, handle.kind, handle.number);
    if (result == CUDA_SUCCESS && kind->attach) {
        result = kind->attach(worker, &handle);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint32_t index = handles->free;
    if (index != 0) {
        handles->free = handles->entries[index].older;
    } else {
        index = handles->nr_entries++;
    }
    handles->entries[index] = (struct fgw_entry){.handle = handle};
    handles->places[place_of(handles, handle.kind, handle.number)] = index;
    count(handles, handle.kind, true);
    link_below(handles, index, above);
    return CUDA_SUCCESS;
}

CUresult fgw_worker_bind(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, void *native)
{
    return fgw_worker_bind_with_flags(worker, kind, number, native, 0);
}

CUresult fgw_worker_bind_with_flags(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, void *native,
                                    uint32_t flags)
{
    struct fgw_handle handle = {.number = number, .native = native, .flags = flags, .kind = (uint8_t)kind};
    uint32_t above = CLIENT;
    if (kind_of(&worker->handles, handle.kind)->is_of_context && worker->current) {
        handle.home = worker->current->home;
        above = index_of(&worker->handles, FGV_HANDLE_CONTEXT, worker->current->handle);
    }
    return add(worker, handle, above);
}

/* It lives in the context that its parent lives in, or, where that outlives contexts, in the current one. */
CUresult fgw_worker_bind_under(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, void *native,
                               enum fgv_handle_kind parent_kind, uint64_t parent)
{
    const uint32_t above = index_of(&worker->handles, (uint8_t)parent_kind, parent);
    struct fgw_handle handle = {.number = number, .native = native, .kind = (uint8_t)kind};
    if (above == CLIENT) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    handle.home = worker->handles.entries[above].handle.home;
    if (handle.home == 0 && kind_of(&worker->handles, handle.kind)->is_of_context && worker->current) {
        handle.home = worker->current->home;
    }
    return add(worker, handle, above);
}

/* ---- going ---- */

static void vacate(struct fgw_handles *handles, uint32_t hole)
{
    for (uint32_t next = (hole + 1) & handles->mask; handles->places[next] != 0; next = (next + 1) & handles->mask) {
        const struct fgw_handle *handle = &handles->entries[handles->places[next]].handle;
        const uint32_t home = hash(handles, handle->number, handle->kind) & handles->mask;
        if (((next - home) & handles->mask) >= ((next - hole) & handles->mask)) {
            handles->places[hole] = handles->places[next];
            hole = next;
        }
    }
    handles->places[hole] = 0;
}

static void unlink_from_above(struct fgw_handles *handles, const struct fgw_entry *entry)
{
    if (entry->newer != 0) {
        handles->entries[entry->newer].older = entry->older;
    } else {
        handles->entries[entry->above].newest = entry->older;
    }
    if (entry->older != 0) {
        handles->entries[entry->older].newer = entry->newer;
    }
}

/* Takes a handle with nothing below it out of the table. */
static struct fgw_handle take_out(struct fgw_handles *handles, uint32_t index)
{
    struct fgw_entry *entry = &handles->entries[index];
    const struct fgw_handle gone = entry->handle;
    vacate(handles, place_of(handles, gone.kind, gone.number));
    unlink_from_above(handles, entry);
    *entry = (struct fgw_entry){.older = handles->free};
    handles->free = index;
    count(handles, gone.kind, false);
    return gone;
}

/* Takes it out, and gives back what hangs on it. Others may go with it, but none above it. */
static void drop(struct fgw_worker *worker, uint32_t index)
{
    struct fgw_handles *handles = &worker->handles;
    const struct fgw_handle gone = take_out(handles, index);
    if ((gone.kind & BY_NATIVE) != 0) {
        return;
    }
    const struct fgw_kind *kind = kind_of(handles, gone.kind);
    const uint32_t by_native =
        kind->is_found_by_native ? index_of(handles, gone.kind | BY_NATIVE, (uint64_t)(uintptr_t)gone.native) : 0;
    if (by_native != 0) {
        take_out(handles, by_native);
    }
    if (kind->release) {
        kind->release(worker, &gone);
    } else {
        free(gone.object);
    }
}

static void drop_all_below(struct fgw_worker *worker, uint32_t top)
{
    const struct fgw_handles *handles = &worker->handles;
    uint32_t at = top;
    for (;;) {
        while (handles->entries[at].newest != 0) {
            at = handles->entries[at].newest;
        }
        if (at == top) {
            return;
        }
        const uint32_t above = handles->entries[at].above;
        drop(worker, at);
        at = above;
    }
}

void fgw_worker_unbind(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number)
{
    const uint32_t index = index_of(&worker->handles, (uint8_t)kind, number);
    if (index != 0) {
        drop_all_below(worker, index);
        drop(worker, index);
    }
}

/* A library's module in a context, and a kernel's function there, go with whichever goes first. */
void fgw_handles_drop_context(struct fgw_worker *worker, const struct fgw_context *context)
{
    struct fgw_handles *handles = &worker->handles;
    for (uint32_t i = 1; i < handles->nr_entries; i++) {
        const struct fgw_handle handle = handles->entries[i].handle;
        if (handle.number != 0 && handle.home == context->home) {
            const struct fgw_handle *above = &handles->entries[handles->entries[i].above].handle;
            if (above->home == 0 && above->kind != FGV_HANDLE_CONTEXT) {
                fgw_worker_unbind(worker, handle.kind, handle.number);
            }
        }
    }
    fgw_worker_unbind(worker, FGV_HANDLE_CONTEXT, context->handle);
}

void fgw_handles_end(struct fgw_worker *worker)
{
    drop_all_below(worker, CLIENT);
    free(worker->handles.places);
    free(worker->handles.entries);
}

/* ---- changing ---- */

void fgw_handle_hang(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, void *object)
{
    const uint32_t index = index_of(&worker->handles, (uint8_t)kind, number);
    if (index != 0) {
        worker->handles.entries[index].handle.object = object;
    }
}

void fgw_handle_charge(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, uint64_t taken_bytes)
{
    const uint32_t index = index_of(&worker->handles, (uint8_t)kind, number);
    if (index != 0) {
        worker->handles.entries[index].handle.taken_bytes = taken_bytes;
        worker->handles.entries[index].handle.is_charged = true;
    }
}

bool fgw_handle_set_managed(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number)
{
    const uint32_t index = index_of(&worker->handles, (uint8_t)kind, number);
    if (index == 0 || worker->handles.entries[index].handle.has_managed) {
        return false;
    }
    return worker->handles.entries[index].handle.has_managed = true;
}

void fgw_handle_put_behind(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, uint64_t host)
{
    const uint32_t index = index_of(&worker->handles, (uint8_t)kind, number);
    if (index != 0) {
        worker->handles.entries[index].handle.behind_host = host;
    }
}

void fgw_handle_record(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, uint64_t seq)
{
    const uint32_t index = index_of(&worker->handles, (uint8_t)kind, number);
    if (index != 0) {
        worker->handles.entries[index].handle.recorded_seq = seq;
    }
}

bool fgw_handle_remember_native(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number)
{
    const uint64_t native = (uint64_t)(uintptr_t)fgw_handle_find(worker, kind, number).native;
    return fgw_worker_bind(worker, kind | BY_NATIVE, native, (void *)(uintptr_t)number) == CUDA_SUCCESS;
}

static void exchange(void **one, void **other)
{
    void *before = *one;
    *one = *other;
    *other = before;
}

/* The entry of the other's that a handle is to be exchanged with; NULL: it has none. */
static struct fgw_entry *counterpart(struct fgw_handles *other, const struct fgw_handle *handle)
{
    const uint32_t index = index_of(other, handle->kind, handle->number);
    return index != 0 ? &other->entries[index] : NULL;
}

bool fgw_handles_exchange(struct fgw_worker *worker, struct fgw_worker *other, uint32_t left_out)
{
    for (int is_checked = 0; is_checked < 2; is_checked++) {
        for (uint32_t i = 1; i < worker->handles.nr_entries; i++) {
            struct fgw_handle *handle = &worker->handles.entries[i].handle;
            if (handle->number == 0 || (handle->kind & BY_NATIVE) != 0 || (left_out >> handle->kind & 1) != 0) {
                continue;
            }
            struct fgw_entry *entry = counterpart(&other->handles, handle);
            if (!entry) {
                return false;
            }
            if (is_checked && handle->kind == FGV_HANDLE_STREAM) {
                struct fgw_stream *stream = handle->object, *theirs = entry->handle.object;
                stream->native = entry->handle.native;
                theirs->native = handle->native;
            }
            if (is_checked) {
                exchange(&handle->native, &entry->handle.native);
            }
        }
    }
    return true;
}

/* ---- asking ---- */

uint64_t fgw_handle_number(struct fgw_worker *worker, enum fgv_handle_kind kind, const void *native)
{
    return (uint64_t)(uintptr_t)fgw_handle_find(worker, kind | BY_NATIVE, (uint64_t)(uintptr_t)native).native;
}

struct fgw_handle fgw_handle_of_native(struct fgw_worker *worker, enum fgv_handle_kind kind, const void *native)
{
    struct fgw_handle handle;
    for (uint32_t at = 0; fgw_handle_next(worker, kind, &at, &handle);) {
        if (handle.native == native) {
            return handle;
        }
    }
    return (struct fgw_handle){0};
}

CUresult fgw_worker_find(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number, void **native)
{
    if (kind == FGV_HANDLE_STREAM && number <= 2) {
        *native = (void *)(uintptr_t)number;
        return CUDA_SUCCESS;
    }
    const uint32_t index = index_of(&worker->handles, (uint8_t)kind, number);
    if (index == 0) {
        return kind_of(&worker->handles, (uint8_t)kind)->unknown;
    }
    *native = worker->handles.entries[index].handle.native;
    return CUDA_SUCCESS;
}

struct fgw_stream *fgw_stream_find(struct fgw_worker *worker, uint64_t number)
{
    if (number <= 2) {
        struct fgw_context *context = worker->current;
        return !context ? NULL : number == 2 ? &context->per_thread : &context->legacy;
    }
    return worker->handles.entries[index_of(&worker->handles, FGV_HANDLE_STREAM, number)].handle.object;
}
