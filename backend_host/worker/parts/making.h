/*
 * A variant on its way: made by a thread while the loop goes on, in steps.
 *
 *     step      who       does
 *     READ      thread    reads the PTX of the kernel, and says which variables it uses
 *     ASKS      loop      looks up where these lie
 *     COMPILE   thread    writes the variant, has the driver compile it
 *     OVER      loop      takes it into the kernel's context, or knows why there is none
 *
 * The driver compiles a library, which needs no context and holds up no other call (an H200: 309 ms for eight kernels,
 * launches beside it as fast as alone; a module instead holds up all calls until it is loaded). Taking it into a
 * context waits for all that runs there, so the loop does that when nothing does.
 *
 * Two have it, loop and thread: the last that lets go frees it. A kernel that goes while its variant is made has
 * nobody wait for that: the thread only finds out at its next step. It keeps nothing of the kernel's or of its image's.
 */
#ifndef BACKEND_HOST_MAKING_H
#define BACKEND_HOST_MAKING_H

#include "parts/state.h"

enum fgw_making_step { FGW_MAKING_READ, FGW_MAKING_ASKS, FGW_MAKING_COMPILE, FGW_MAKING_OVER, FGW_MAKING_GIVEN_UP };

/* What came of it. */
struct fgw_made {
    enum fgv_whole why_whole; /* not: there is a variant, and what follows says which */
    CUlibrary library;        /* the taker's to unload */
    uint64_t text_bytes;
    uint64_t took_ns; /* of the thread */
    uint32_t mode;
    uint32_t nr_constants;
    const char *constants; /* their names, each with its terminating zero; until it is ended */
};

/* cffi: begin */
/* For the thread. After `compile` and `fail` it is not the thread's any more. */
const struct fgw_variant_wish *fgw_making_wish(const struct fgw_making *making);
/* False: nobody wants it any more. */
bool fgw_making_ask(struct fgw_making *making, const char *names, uint32_t nr_names);
uint64_t fgw_making_address(const struct fgw_making *making, uint32_t number); /* 0: the driver does not know it */
void fgw_making_compile(struct fgw_making *making, uint32_t mode, const char *text, const char *constants,
                        uint32_t nr_constants);
void fgw_making_fail(struct fgw_making *making, int32_t why_whole);
/* cffi: end */

/* Begins one, for a kernel that is launched in the current context. NULL: too many are on their way (`why` is
 * FGV_WHOLE_BEING_MADE), or there is no memory. */
struct fgw_making *fgw_making_begin(struct fgw_worker *worker, const struct fgw_variant_wish *wish,
                                    enum fgv_whole *why);
/* Looks addresses up where they are asked for. */
void fgw_makings_poll(struct fgw_worker *worker);
bool fgw_making_is_over(const struct fgw_making *making);
/* Lets the loop stand still until it is over. */
void fgw_making_wait(struct fgw_worker *worker, const struct fgw_making *making);
/* Takes what came of it, once it is over. */
struct fgw_made fgw_making_take(struct fgw_making *making);
/* The loop wants it no more, or has what came of it. */
void fgw_making_end(struct fgw_worker *worker, struct fgw_making *making);
/* Whether it is of a kernel in this context. */
bool fgw_making_is_of(const struct fgw_making *making, const struct fgw_context *context);

#endif
