/* See bound.h. */
#include "calls/bound.h"

#include <stdlib.h>

#include "client/handles.h"
#include "page/layout.h"

#define FOUND (UINT32_C(1) << 30) /* beside the bits */
#define LEFT  (UINT32_C(1) << 31) /* nobody waits for them */

_Static_assert(FGW_BOUND_IMAGES == 1u << (FGW_NR_BOUND_BY_IMAGES - 1), "images have the lowest bits");

/* An image that a thread looks into. Whoever comes second of the loop and the thread frees it. */
struct fgw_ticket {
    _Atomic uint32_t found;
    struct fgw_bound_image *image; /* of the loop's */
    struct fgw_ticket *next;       /* likewise */
};

void fgw_worker_set_binds(struct fgw_worker *worker, fgw_binds_fn binds)
{
    worker->calls->bounds.binds = binds;
}

/* ---- images ---- */

static void count(struct fgw_worker *worker, uint32_t bits, bool is_there)
{
    for (uint32_t i = 0; i < FGW_NR_BOUND_BY_IMAGES; i++) {
        if ((bits >> i & 1) != 0) {
            worker->calls->bounds.nr_images[i] += is_there ? 1 : UINT32_MAX;
        }
    }
}

static uint32_t of_images(uint32_t bits)
{
    return bits & ((1u << FGW_NR_BOUND_BY_IMAGES) - 1);
}

/* FGW_BOUND_UNKNOWN: the image's ticket will have them. */
static uint32_t look(struct fgw_worker *worker, struct fgw_bound_image *bound, const uint8_t *image,
                     uint64_t image_bytes)
{
    struct fgw_bounds *bounds = &worker->calls->bounds;
    struct fgw_ticket *ticket = bounds->binds ? calloc(1, sizeof(*ticket)) : NULL;
    if (!ticket) {
        return FGW_BOUND_IMAGES;
    }
    ticket->image = bound;
    const uint32_t bits = bounds->binds(image, image_bytes, fgw_capability_of(worker), (uint64_t)(uintptr_t)ticket);
    if (bits != FGW_BOUND_UNKNOWN) {
        free(ticket);
        return bits;
    }
    ticket->next = bounds->tickets;
    bounds->tickets = ticket;
    bound->ticket = ticket;
    return bits;
}

void fgw_bound_add(struct fgw_worker *worker, struct fgw_bound_image *bound, const uint8_t *image, uint64_t image_bytes)
{
    const uint32_t bits = look(worker, bound, image, image_bytes);
    bound->bits = bits == FGW_BOUND_UNKNOWN ? FGW_BOUND_IMAGES : of_images(bits);
    count(worker, bound->bits, true);
}

void fgw_image_binds(uint64_t ticket, uint32_t bits)
{
    struct fgw_ticket *of = (struct fgw_ticket *)(uintptr_t)ticket;
    if (atomic_exchange(&of->found, FOUND | of_images(bits)) == LEFT) {
        free(of);
    }
}

/* Takes a ticket off the list. It is the loop's no more, and may be gone. */
static void leave(struct fgw_worker *worker, struct fgw_ticket *ticket)
{
    struct fgw_ticket **link = &worker->calls->bounds.tickets;
    while (*link != ticket) {
        link = &(*link)->next;
    }
    *link = ticket->next;
    ticket->image->ticket = NULL;
    if (atomic_exchange(&ticket->found, LEFT) != 0) {
        free(ticket);
    }
}

void fgw_bound_remove(struct fgw_worker *worker, struct fgw_bound_image *bound)
{
    count(worker, bound->bits, false);
    if (bound->ticket) {
        leave(worker, bound->ticket);
    }
}

void fgw_bound_add_unkept(struct fgw_worker *worker)
{
    count(worker, FGW_BOUND_IMAGES, true);
}

void fgw_bound_remove_unkept(struct fgw_worker *worker)
{
    count(worker, FGW_BOUND_IMAGES, false);
}

/* The driver's own managed memory. */
void fgw_bound_add_managed(struct fgw_worker *worker, enum fgv_handle_kind kind, uint64_t number)
{
    worker->calls->bounds.nr_managed += fgw_handle_set_managed(worker, kind, number) ? 1 : 0;
}

void fgw_bound_remove_managed(struct fgw_worker *worker)
{
    worker->calls->bounds.nr_managed--;
}

/* Hears what has been found since. */
static void hear(struct fgw_worker *worker)
{
    for (struct fgw_ticket *ticket = worker->calls->bounds.tickets; ticket;) {
        struct fgw_ticket *next = ticket->next;
        const uint32_t found = atomic_load(&ticket->found);
        if ((found & FOUND) != 0) {
            struct fgw_bound_image *bound = ticket->image;
            leave(worker, ticket);
            count(worker, bound->bits, false);
            bound->bits = of_images(found);
            count(worker, bound->bits, true);
        }
        ticket = next;
    }
}

/* ---- all of it ---- */

static bool has(const struct fgw_worker *worker, enum fgv_handle_kind kind)
{
    return fgw_handles_nr(worker, kind) != 0;
}

/* A capture becomes a graph. */
static bool has_graphs(const struct fgw_worker *worker)
{
    return has(worker, FGV_HANDLE_GRAPH) || has(worker, FGV_HANDLE_GRAPH_NODE) || has(worker, FGV_HANDLE_GRAPH_EXEC) ||
           has(worker, FGW_HANDLE_GRAPH_CONDITION) || worker->nr_captures != 0;
}

static bool has_arrays(const struct fgw_worker *worker)
{
    return has(worker, FGV_HANDLE_ARRAY) || has(worker, FGV_HANDLE_MIPMAPPED_ARRAY) || has(worker, FGW_OWN_TEXTURE) ||
           has(worker, FGW_OWN_SURFACE);
}

/* Pools are of the span, too. Who allocates before it has one never gets one. */
static bool has_placed_memory(const struct fgw_worker *worker)
{
    const struct fgw_calls *calls = worker->calls;
    return (calls->span.bytes == 0 && !calls->span.is_wanted) || has(worker, FGV_HANDLE_ALLOCATION) ||
           calls->mapped.nr != 0 || calls->reserved.nr != 0 || calls->graph_memory.needs ||
           calls->graph_memory.counted_bytes != 0;
}

uint32_t fgw_bound_of(struct fgw_worker *worker)
{
    const struct fgw_calls *calls = worker->calls;
    uint32_t bits = calls->bounds.nr_managed != 0 ? FGW_BOUND_MANAGED : 0;
    if (calls->most_kept_bytes == 0) {
        return bits;
    }
    hear(worker);
    for (uint32_t i = 0; i < FGW_NR_BOUND_BY_IMAGES; i++) {
        bits |= calls->bounds.nr_images[i] != 0 ? 1u << i : 0;
    }
    bits |= worker->told.is_lost ? FGW_BOUND_VARIABLES : 0;
    bits |= worker->told.nr_passed != 0 ? FGW_BOUND_ADDRESSES : 0;
    bits |= has_graphs(worker) ? FGW_BOUND_GRAPHS : 0;
    bits |= has_arrays(worker) ? FGW_BOUND_ARRAYS : 0;
    bits |= has_placed_memory(worker) ? FGW_BOUND_MEMORY : 0;
    bits |= calls->sharing.nr_exports != 0 || calls->sharing.nr_imports != 0 ? FGW_BOUND_SHARED : 0;
    bits |= has(worker, FGV_HANDLE_LINK) ? FGW_BOUND_LINKS : 0;
    return bits;
}
