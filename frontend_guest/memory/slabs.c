/*
 * See slabs.h. A slab is divided into pieces that lie one behind the other, used and free ones; no two free ones are
 * neighbours. Free pieces hang in bins by size, four to each power of two, and a word has a bit for each bin that has
 * any, so that finding one takes no search. (Masmano and others, TLSF: a new dynamic memory allocator for real-time
 * systems, 2004.)
 */
#include "memory/slabs.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"
#include "call/call.h"
#include "call/current.h"
#include "ivshmem/ring.h"
#include "region/client.h"

#define UNIT_BYTES UINT64_C(512) /* as drivers align */
#define SLAB_UNITS (uint32_t)(FGV_SLAB_BYTES / UNIT_BYTES)
#define PER_POWER  4u
#define NR_BINS    52u /* up to SLAB_UNITS = 2^12 */

_Static_assert(sizeof(struct fgv_record) + sizeof(struct fgv_wire_header) + sizeof(struct fgv_request_cuMemFree_v2) <=
                       FGV_RECORD_ALIGN &&
                   sizeof(struct fgv_request_cuMemAlloc_v2) == sizeof(struct fgv_request_cuMemFree_v2),
               "a record of either takes one line, so it ends where the next one begins");

struct piece {
    uint64_t address;
    uint32_t units;
    bool is_free;
    struct slabs *slabs;
    struct piece *before, *behind; /* in the slab */
    struct piece *newer, *older;   /* in the bin */
    struct piece *last, *next;     /* slabs, of each its first piece, which stays that */
};

/* Of one context. */
struct slabs {
    const struct fgv_context *context;
    uint64_t handle;
    uint64_t has; /* a bit for each bin that has pieces */
    struct piece *bins[NR_BINS];
    struct piece *newest; /* slab */
    struct slabs *next;
};

static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;
static struct slabs *first;
static uint64_t quiet_at; /* what is in the ring before this has ended; 0: not known */

/* ---- bins ---- */

/* The bin in which a free piece hangs: all in it have at least as many units as its least one. */
static uint32_t bin_of(uint32_t units)
{
    const uint32_t power = 31u - (uint32_t)__builtin_clz(units);
    const uint32_t part = power >= 2 ? units >> (power - 2) & (PER_POWER - 1) : 0;
    return power * PER_POWER + part;
}

/* The first bin of which every piece is large enough. */
static uint32_t bin_for(uint32_t units)
{
    const uint32_t bin = bin_of(units);
    const uint32_t power = bin / PER_POWER;
    const uint32_t least = power >= 2 ? (PER_POWER + bin % PER_POWER) << (power - 2) : 1u << power;
    return units == least ? bin : power >= 2 ? bin + 1 : (power + 1) * PER_POWER;
}

static void hang(struct piece *piece)
{
    struct slabs *slabs = piece->slabs;
    const uint32_t bin = bin_of(piece->units);
    piece->is_free = true;
    piece->newer = NULL;
    piece->older = slabs->bins[bin];
    if (piece->older) {
        piece->older->newer = piece;
    }
    slabs->bins[bin] = piece;
    slabs->has |= UINT64_C(1) << bin;
}

static void unhang(struct piece *piece)
{
    struct slabs *slabs = piece->slabs;
    const uint32_t bin = bin_of(piece->units);
    if (piece->newer) {
        piece->newer->older = piece->older;
    } else {
        slabs->bins[bin] = piece->older;
    }
    if (piece->older) {
        piece->older->newer = piece->newer;
    }
    if (!slabs->bins[bin]) {
        slabs->has &= ~(UINT64_C(1) << bin);
    }
    piece->is_free = false;
}

static struct piece *find(const struct slabs *slabs, uint32_t units)
{
    const uint32_t bin = bin_for(units);
    const uint64_t has = bin < NR_BINS ? slabs->has >> bin << bin : 0;
    return has != 0 ? slabs->bins[__builtin_ctzll(has)] : NULL;
}

/* Takes as much of a free piece; false without memory for what is left. */
static bool cut(struct piece *piece, uint32_t units)
{
    struct piece *rest = NULL;
    if (piece->units > units) {
        rest = malloc(sizeof(*rest));
        if (!rest) {
            return false;
        }
    }
    unhang(piece);
    if (rest) {
        *rest = (struct piece){.address = piece->address + units * UNIT_BYTES,
                               .units = piece->units - units,
                               .slabs = piece->slabs,
                               .before = piece,
                               .behind = piece->behind};
        if (rest->behind) {
            rest->behind->before = rest;
        }
        piece->behind = rest;
        piece->units = units;
        hang(rest);
    }
    return true;
}

/* Makes one piece of two that are free: the first, which hangs in no bin. */
static void join(struct piece *piece)
{
    struct piece *gone = piece->behind;
    piece->units += gone->units;
    piece->behind = gone->behind;
    if (piece->behind) {
        piece->behind->before = piece;
    }
    free(gone);
}

/* ---- slabs ---- */

/* Those of the current context; NULL: without memory, or not to be made. */
static struct slabs *slabs_of_current(bool is_made)
{
    for (struct slabs *slabs = first; slabs; slabs = slabs->next) {
        if (slabs->handle == fgv_thread.current) {
            return slabs;
        }
    }
    struct slabs *slabs = is_made ? calloc(1, sizeof(*slabs)) : NULL;
    if (slabs) {
        *slabs = (struct slabs){.context = fgv_thread.context, .handle = fgv_thread.current, .next = first};
        first = slabs;
    }
    return slabs;
}

static uint64_t tail(void)
{
    return atomic_load_explicit(&fgv_guest.producer.control->tail, memory_order_relaxed);
}

/* A record that is no work of the device is behind what has ended. */
static void pass_over(uint64_t position)
{
    if (quiet_at == position) {
        quiet_at = position + FGV_RECORD_ALIGN;
    }
}

static CUresult take_slab(struct slabs *slabs)
{
    struct piece *piece = malloc(sizeof(*piece));
    struct fgv_call call;
    struct fgv_request_cuMemAlloc_v2 *request =
        piece ? fgv_call_begin(&call, FGV_CALL_cuMemAlloc_v2, sizeof(*request), 0) : NULL;
    if (!request) {
        free(piece);
        return piece ? call.error : CUDA_ERROR_OUT_OF_MEMORY;
    }
    request->bytesize = FGV_SLAB_BYTES;
    pass_over(call.position);
    struct fgv_reply_cuMemAlloc_v2 reply;
    CUresult result = fgv_call_wait(&call, &reply, sizeof(reply));
    if (result != CUDA_SUCCESS) {
        free(piece);
        return result;
    }
    *piece = (struct piece){.address = reply.dptr, .units = SLAB_UNITS, .slabs = slabs, .next = slabs->newest};
    if (piece->next) {
        piece->next->last = piece;
    }
    slabs->newest = piece;
    hang(piece);
    return CUDA_SUCCESS;
}

/* Nobody waits for it: it cannot fail, and what comes later finds the memory free. */
static void give_slab(struct piece *piece)
{
    struct slabs *slabs = piece->slabs;
    struct fgv_call call;
    struct fgv_request_cuMemFree_v2 *request =
        fgv_call_begin_for(&call, FGV_CALL_cuMemFree_v2, sizeof(*request), 0, slabs->handle);
    if (request) {
        request->dptr = piece->address;
        pass_over(call.position);
        fgv_call_post(&call);
    }
    if (piece->last) {
        piece->last->next = piece->next;
    } else {
        slabs->newest = piece->next;
    }
    if (piece->next) {
        piece->next->last = piece->last;
    }
    free(piece);
}

/* Another slab that is empty; NULL: there is none. */
static struct piece *find_empty(const struct slabs *slabs)
{
    return slabs->bins[NR_BINS - PER_POWER];
}

/* ---- what the program does ---- */

CUresult fgv_slab_allocate(size_t bytes, uint64_t *address, uint64_t *place)
{
    const uint32_t units = (uint32_t)((bytes + UNIT_BYTES - 1) / UNIT_BYTES);
    pthread_mutex_lock(&books);
    struct slabs *slabs = slabs_of_current(true);
    struct piece *piece = slabs ? find(slabs, units) : NULL;
    CUresult result = slabs ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (slabs && !piece) {
        result = take_slab(slabs);
        piece = result == CUDA_SUCCESS ? find(slabs, units) : NULL;
    }
    if (result == CUDA_SUCCESS && !cut(piece, units)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        *address = piece->address;
        *place = (uint64_t)(uintptr_t)piece;
    }
    pthread_mutex_unlock(&books);
    return result;
}

CUresult fgv_slab_wait(void)
{
    pthread_mutex_lock(&books);
    const bool is_quiet = quiet_at == tail();
    pthread_mutex_unlock(&books);
    if (is_quiet) {
        return fgv_call_healthy();
    }
    struct fgv_call call;
    struct fgv_request_cuMemFree_v2 *request = fgv_call_begin(&call, FGV_CALL_cuMemFree_v2, sizeof(*request), 0);
    if (!request) {
        return call.error;
    }
    request->dptr = 0; /* frees nothing, once all work has ended */
    const uint64_t end = call.position + FGV_RECORD_ALIGN;
    CUresult result = fgv_call_wait(&call, NULL, 0);
    pthread_mutex_lock(&books);
    if (result == CUDA_SUCCESS && quiet_at < end) {
        quiet_at = end;
    }
    pthread_mutex_unlock(&books);
    return result;
}

void fgv_slab_free(uint64_t place)
{
    struct piece *piece = (struct piece *)(uintptr_t)place;
    pthread_mutex_lock(&books);
    if (piece->behind && piece->behind->is_free) {
        unhang(piece->behind);
        join(piece);
    }
    if (piece->before && piece->before->is_free) {
        piece = piece->before;
        unhang(piece);
        join(piece);
    }
    if (piece->units == SLAB_UNITS && find_empty(piece->slabs)) {
        give_slab(piece);
    } else {
        hang(piece);
    }
    pthread_mutex_unlock(&books);
}

bool fgv_slab_trim(void)
{
    pthread_mutex_lock(&books);
    const struct slabs *slabs = slabs_of_current(false);
    struct piece *piece = slabs ? find_empty(slabs) : NULL;
    if (piece) {
        unhang(piece);
        give_slab(piece);
    }
    pthread_mutex_unlock(&books);
    return piece != NULL;
}

static void forget(struct slabs *slabs)
{
    for (struct piece *slab = slabs->newest; slab;) {
        struct piece *piece = slab;
        slab = slab->next;
        while (piece) {
            struct piece *behind = piece->behind;
            free(piece);
            piece = behind;
        }
    }
    free(slabs);
}

void fgv_slab_forget_context(const struct fgv_context *context)
{
    pthread_mutex_lock(&books);
    for (struct slabs **link = &first; *link;) {
        struct slabs *slabs = *link;
        if (slabs->context == context) {
            *link = slabs->next;
            forget(slabs);
        } else {
            link = &slabs->next;
        }
    }
    pthread_mutex_unlock(&books);
}
