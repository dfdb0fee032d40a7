/*
 * A kind of the client's objects, as the table of handles knows it: whose they are, and what is done for one when its
 * number comes and goes. calls/kinds.c has one row for each kind.
 */
#ifndef BACKEND_HOST_KIND_H
#define BACKEND_HOST_KIND_H

#include "client/saved.h"
#include "client/state.h"

/* It tells whether the client may have one more, before the driver is asked to make it. */
typedef bool (*fgw_has_room)(struct fgw_worker *worker);
/* It makes what hangs on a handle that is about to be in the table. */
typedef CUresult (*fgw_attach)(struct fgw_worker *worker, struct fgw_handle *handle);
/* It gives back what hangs on a handle that is in the table no more. It may unbind others, but none above it. */
typedef void (*fgw_release)(struct fgw_worker *worker, const struct fgw_handle *handle);

/* It writes of a live handle what makes an equal one. It says why not, in words, NULL: it did. The context that the
 * object lives in is current. It binds nothing: the handle stays where it is. */
typedef const char *(*fgw_save)(struct fgw_worker *worker, const struct fgw_handle *handle, struct fgw_saver *saver);
/* It makes an equal object under the number of the head, in the current context, from bytes that may be anything. It
 * says why not, NULL: it did. */
typedef const char *(*fgw_restore)(struct fgw_worker *worker, const struct fgw_saved_head *head,
                                   struct fgw_saved *saved);

#define FGW_BELOW(kind) (UINT32_C(1) << (kind))

struct fgw_kind {
    const char *name;
    uint32_t above;          /* FGW_BELOW of the kinds that it may go with; FGW_BELOW(0): the client alone */
    CUresult unknown;        /* what a call is answered whose number names none of this kind */
    bool is_of_context;      /* it goes with the context that was current when it was bound */
    bool is_found_by_native; /* the driver names it, too: fgw_handle_number */
    fgw_has_room has_room;   /* NULL: as long as the table has room */
    fgw_attach attach;       /* NULL: nothing hangs on it yet */
    fgw_release release;     /* NULL: `object` is freed, which is all */
    fgw_save save;
    fgw_restore restore;
    const char *cannot; /* why it has neither */
};

#endif
