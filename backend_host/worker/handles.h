/*
 * The guest's numbers and the driver's objects behind them, and what hangs on them: see handles.c.
 */
#ifndef BACKEND_HOST_HANDLES_H
#define BACKEND_HOST_HANDLES_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_api/types.h"
#include "cuda_api/wire.h"

#define FGV_MAX_HANDLES (1u << 20)

/* Kinds of this table alone: what a guest knows by the driver's own values. */
#define FGV_OWN_TEXTURE ((enum fgv_handle_kind)FGV_HANDLE_KINDS)
#define FGV_OWN_SURFACE ((enum fgv_handle_kind)(FGV_HANDLE_KINDS + 1))
/* The value of a conditional handle, inverted: small numbers are those of default streams. */
#define FGV_HANDLE_GRAPH_CONDITION ((enum fgv_handle_kind)0x30)
/* In numbers that the worker gave. */
#define FGV_HOST_NUMBER (UINT64_C(3) << 62)

struct fgv_context;
struct fgv_worker;

struct fgv_handle {
    uint64_t number; /* 0: free place */
    void *native;
    void *object;
    uint64_t parent;
    uint64_t held_by; /* of an event: the host function that what it was recorded behind waits for */
    struct fgv_context *context;
    uint32_t nr_children;
    uint8_t kind;
    uint8_t parent_kind;
};

/* Gives back what hangs on a handle that is in the table no more. It may unbind others. */
typedef void (*fgv_release)(struct fgv_worker *worker, const struct fgv_handle *handle);

struct fgv_handles {
    struct fgv_handle *places;
    uint32_t mask;
    uint32_t nr;
    const fgv_release *releases; /* by kind; NULL: `object` is freed, which is all */
};

/* `releases` has FGV_HANDLE_KINDS entries. */
bool fgv_handles_init(struct fgv_worker *worker, const fgv_release *releases);
/* The client has ended, and its streams went with their contexts: whatever is left is released, in no order. */
void fgv_handles_end(struct fgv_worker *worker);
struct fgv_handle *fgv_handle_find(struct fgv_worker *worker, enum fgv_handle_kind kind, uint64_t number);
/* What the driver's object is known as, 0: it has no number. Only for kinds that the worker numbers. */
uint64_t fgv_handle_number(struct fgv_worker *worker, enum fgv_handle_kind kind, const void *native);
/* Makes fgv_handle_number find it. False: no memory. */
bool fgv_handle_remember_native(struct fgv_worker *worker, enum fgv_handle_kind kind, uint64_t number);
/* Looks through all handles of a kind for the driver's object; NULL when it is none of them. */
struct fgv_handle *fgv_handle_of_native(struct fgv_worker *worker, enum fgv_handle_kind kind, const void *native);
void fgv_handles_drop_context(struct fgv_worker *worker, struct fgv_context *context);

#endif
