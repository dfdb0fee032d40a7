/*
 * What a way off the device is, at the end of a turn or in another's. Each stands in a file of its own and in FGW_WAYS;
 * nothing else knows them by name.
 */
#ifndef BACKEND_HOST_WAY_H
#define BACKEND_HOST_WAY_H

#include "page/outlook.h"
#include "turn/phase.h"
#include "turn/state.h"

/* So much work may be left when the grant goes on: what handing it on takes. 60 and 75 us did no better
 * (docs/lab/hand-overs.md). */
#define FGW_LEAD_NS UINT64_C(50000)
/* Work that goes on for more than half a slice is not waited for at the end of one, and not left beside a vGPU that
 * will use all of its own: to withdraw it takes some 1 ms, to wait for it keeps that one off for half a turn. */
#define FGW_LONG_DIVISOR 2u
/* A kernel that was told to stop, or asked to give way, is waited for so long, which is the device's own time slice:
 * blocks that last longer are left to those. */
#define FGW_STOP_NS UINT64_C(2000000)

/* X(WAY), in the order in which they are tried: fgw_way_WAY of WAY.c. The last one can always be gone. */
#define FGW_WAYS(X)                                                                                                    \
    X(critical)                                                                                                        \
    X(stop)                                                                                                            \
    X(yield)                                                                                                           \
    X(drain)                                                                                                           \
    X(withdraw)                                                                                                        \
    X(tail)                                                                                                            \
    X(share)

struct fgw_way {
    enum fgw_work work; /* becomes of what is on the device, once others may have it */
    /* Finds out whether the way is there at all. NULL: it always is. */
    void (*init)(struct fgw_worker *worker);
    /* Tells whether it can end a turn in the midst of the work. NULL: it cannot. */
    bool (*interrupts)(const struct fgw_worker *worker);
    /* Tells whether a worker whose turn is over goes this way now. */
    bool (*can)(struct fgw_worker *worker, struct fgw_outlook *outlook);
    /* Tells whether one without a turn, with work on the device, has to go it. NULL: never. */
    bool (*is_due)(const struct fgw_worker *worker, struct fgw_outlook *outlook);
    /* Goes. False: the device refuses, and the next way is tried. NULL: there is nothing to do for it. */
    bool (*begin)(struct fgw_worker *worker, struct fgw_outlook *outlook);
    /* Tells whether others may have the device, now that it has begun. NULL: they may at once. */
    bool (*is_done)(const struct fgw_worker *worker);
    /* Charges what goes this way, when others may have the device. NULL: it is charged as it ends. */
    void (*charge)(struct fgw_worker *worker, const struct fgw_outlook *outlook);
    /* Brings back what is off the device. NULL: nothing is. */
    void (*back)(struct fgw_worker *worker);
    /* The driver may put the worker, which stands, on another device until this is over. NULL: that is all the same. */
    void (*renew)(struct fgw_worker *worker, bool is_over);
};

#define FGW_WAY(name) extern const struct fgw_way fgw_way_##name;
FGW_WAYS(FGW_WAY)
#undef FGW_WAY

/* Tells how much longer the device will be at it, by what it took so far; UINT64_MAX: nobody knows, as what is overdue
 * by more than a little is not what came before it. */
uint64_t fgw_way_left_ns(const struct fgw_worker *worker, uint64_t now_ns);
/* Tells whether all that was on the device has ended. */
bool fgw_way_has_ended(const struct fgw_worker *worker);
/* Tells when the grant of a slice that is over is to go on, by what is known of the work on the device; 0: not by that.
 */
uint64_t fgw_way_due_ns(const struct fgw_worker *worker);

#endif
