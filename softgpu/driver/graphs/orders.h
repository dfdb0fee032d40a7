/*
 * What kernels of an executable graph order: graphs that are run after it (runtime/runtime.h). It is known by where
 * kernels write it, which stays for as long as anything refers to it. All with the driver's lock.
 */
#ifndef SOFTGPU_ORDERS_H
#define SOFTGPU_ORDERS_H

#include "runtime/runtime.h"
#include "stream/records.h"

struct CUgraphExec_st;

struct sgp_order_book {
    uint32_t nr_references;
    struct sgp_orders *orders;
    struct CUstream_st *aside; /* where what was ordered runs, while the stream waits */
};

/* Graphs that are to be run, the next one last. */
struct sgp_agenda {
    struct CUgraphExec_st **items;
    uint32_t nr, room;
};

/* `graph`: what kernels that ask get told. */
CUresult sgp_order_book_new(struct CUctx_st *context, const struct CUgraphExec_st *graph, struct sgp_order_book **made);
void sgp_order_book_release(struct sgp_order_book *book);
/* Takes what was ordered out of the book: what is to run first, which are those without a tail, comes last. */
CUresult sgp_order_book_take(const struct sgp_order_book *book, struct sgp_agenda *agenda);

#endif
