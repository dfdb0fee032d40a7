/* Books of orders: see orders.h. What stands in one was written by kernels: anything. */
#include "graphs/orders.h"

#include <stdlib.h>
#include <string.h>

#include "memory/memory_map.h"
#include "stream/stream.h"

/* A graph that orders itself twice each time would fill the memory. */
#define MAX_AGENDA 4096u

CUresult sgp_order_book_new(struct CUctx_st *context, const struct CUgraphExec_st *graph, struct sgp_order_book **made)
{
    struct sgp_order_book *book = calloc(1, sizeof(*book));
    void *orders = NULL;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (book) {
        book->aside = sgp_stream_new(context, CU_STREAM_NON_BLOCKING, 0);
    }
    if (book && book->aside) {
        result = sgp_memory_new(context, sizeof(*book->orders), SGP_MEMORY_MODULE, &orders);
    }
    if (result) {
        if (book && book->aside) {
            sgp_stream_end(book->aside);
        }
        free(book);
        return result;
    }
    sgp_object_keep(book->aside);
    book->nr_references = 1;
    book->orders = orders;
    book->orders->graph = (uintptr_t)graph;
    book->orders->nr = 0;
    *made = book;
    return CUDA_SUCCESS;
}

void sgp_order_book_release(struct sgp_order_book *book)
{
    struct sgp_allocation *allocation;

    if (--book->nr_references) {
        return;
    }
    allocation = sgp_memory_find((uintptr_t)book->orders);
    if (allocation && allocation->start == (uintptr_t)book->orders) { /* else it went with its context */
        sgp_memory_delete(allocation);
    }
    if (sgp_object_is(book->aside, SGP_STREAM)) { /* likewise */
        sgp_stream_end(book->aside);
    }
    sgp_object_release(book->aside);
    free(book);
}

static bool agenda_widen(struct sgp_agenda *agenda, uint32_t nr)
{
    struct CUgraphExec_st **items = agenda->items;

    if (agenda->nr + nr > MAX_AGENDA) {
        return false;
    }
    if (agenda->nr + nr > agenda->room) {
        items = realloc(agenda->items, (agenda->nr + nr) * sizeof(*items));
        if (items) {
            agenda->items = items;
            agenda->room = agenda->nr + nr;
        }
    }
    return items != NULL;
}

static void agenda_add(struct sgp_agenda *agenda, const struct sgp_order *orders, uint32_t nr, bool are_tails)
{
    while (nr--) {
        if ((orders[nr].stream == SGP_ORDER_TAIL) == are_tails) {
            agenda->items[agenda->nr++] = (struct CUgraphExec_st *)(uintptr_t)orders[nr].graph;
        }
    }
}

CUresult sgp_order_book_take(const struct sgp_order_book *book, struct sgp_agenda *agenda)
{
    struct sgp_orders taken;

    memcpy(&taken, book->orders, sizeof(taken));
    book->orders->nr = 0;
    if (taken.nr > SGP_MAX_ORDERS) {
        taken.nr = SGP_MAX_ORDERS;
    }
    if (taken.nr && !agenda_widen(agenda, taken.nr)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    agenda_add(agenda, taken.orders, taken.nr, true);
    agenda_add(agenda, taken.orders, taken.nr, false);
    return CUDA_SUCCESS;
}
