/*
 * Addresses of module variables that the client was told: by them it copies and fills all its life, wherever the driver
 * puts the variables. A client that changes its device within its process finds them elsewhere. What it names by an
 * address that it was told is led to where the variable is now.
 *
 * Ranges that were told are disjoint, so that each address means one thing. Drivers give addresses anew: a variable
 * that comes to lie where another was told to be is told at an address of the worker's own choice, where there is no
 * memory.
 *
 * A word of a kernel's parameters is led, too (kernel.h), and the variable counts as passed on from then on: what the
 * kernel does with the address nobody knows, so the client stays on its device.
 *
 * Wrong when: the client writes an address that it was told before it moved into memory only afterwards, and a kernel
 * goes by it: the kernel faults, or reads what is there now. Or a parameter is a number that happens to be such an
 * address.
 */
#ifndef BACKEND_HOST_WORKER_TOLD_H
#define BACKEND_HOST_WORKER_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "client/service.h"

struct fgw_worker;

#define FGW_MAX_TOLD        4096u
#define FGW_TOLD_AREA_BYTES (UINT64_C(64) << 20) /* for those that are told elsewhere: constants of 64 KiB at most */

struct fgw_told_variable {
    uint64_t told, bytes;
    uint64_t now;
    uint64_t other;   /* on the device that it is about to leave for, or could go back to */
    uint64_t owner;   /* the guest's number of the module or the library */
    uint64_t context; /* likewise, that was current when it was told */
    enum fgv_handle_kind owner_kind;
    bool is_passed; /* to a kernel */
    char *name;
};

struct fgw_told {
    struct fgw_told_variable *items; /* by `told` */
    uint32_t nr, room;
    uint32_t nr_passed;
    uint64_t low, bytes; /* from the first to the end of the last */
    uint64_t area, area_left_bytes;
    bool is_wanted; /* by who may change its device within its process; else nothing is noted */
    bool is_lost;   /* of one that was told nobody knows where it is */
};

/* Whether anything is noted of what comes. */
void fgw_told_want(struct fgw_worker *worker, bool is_wanted);
/* The client is about to be told where a variable is: changes `address` to what it is told. False: it cannot be. */
bool fgw_told_tell(struct fgw_worker *worker, const struct fgw_told_variable *variable, uint64_t *address);
/* The module or library is gone, and what was told of it. */
void fgw_told_forget(struct fgw_worker *worker, enum fgv_handle_kind owner_kind, uint64_t owner);
/* The context is gone, and what libraries had in it. */
void fgw_told_forget_context(struct fgw_worker *worker, uint64_t context);
/* Finds the variable that was told to have this address in it; NULL: there is none. */
struct fgw_told_variable *fgw_told_find(struct fgw_told *told, uint64_t address);
/* Tells whether any address in there may be led elsewhere. */
bool fgw_told_hides(const struct fgw_worker *worker, uint64_t address, uint64_t bytes);
/* The driver has placed memory there, at its own choice: if the client can never name it, the worker ends. */
void fgw_told_watch(struct fgw_worker *worker, uint64_t address, uint64_t bytes);
/* An address of the driver's as the client knows it. */
uint64_t fgw_told_as_told(const struct fgw_worker *worker, uint64_t address);
/* All variables are where they are on the other device, and that is where they were. */
void fgw_told_exchange(struct fgw_worker *worker);
/* As fgw_worker_address, for one that a kernel gets: the variable has been passed on from then on. */
uint64_t fgw_told_pass(struct fgw_worker *worker, uint64_t address);

#endif
