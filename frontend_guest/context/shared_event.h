/* Events that programs of this machine share (CU_EVENT_INTERPROCESS): see shared_event.c and shared_record.c. */
#ifndef FRONTEND_GUEST_SHARED_EVENT_H
#define FRONTEND_GUEST_SHARED_EVENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/handles.h"
#include "ivshmem/region.h"
#include "region/client.h"

struct fgv_context;

struct fgv_shared_handle {
    uint64_t magic;
    uint64_t key;     /* of the event's row */
    uint64_t program; /* that made it */
    uint32_t index;   /* of the row */
    uint32_t reserved;
};

/* The last record of an event in a word, and the stream that it was made in. */
struct fgv_shared_lane {
    uint64_t number;
    uint64_t context;
    uint64_t stream;
};

/* What hangs on an event's handle is the context that it was made in, or one of these, marked. */
struct fgv_shared_event {
    struct fgv_context *context;
    struct fgv_shared_handle handle;
    _Atomic bool is_captured;     /* its last record went into a graph */
    _Atomic uint64_t nr_recorded; /* number of the last record that the ordinary event has, too */
    struct fgv_shared_lane lanes[FGV_NR_EVENT_WORDS];
};

extern _Atomic uint32_t fgv_nr_shared_events; /* that this program has */

/* The shared event behind what hangs on a handle; NULL: it is none. */
static inline struct fgv_shared_event *fgv_shared_event_of(const void *object)
{
    const uintptr_t marked = (uintptr_t)object;
    return (marked & 1) != 0 ? (struct fgv_shared_event *)(marked - 1) : NULL;
}

static inline struct fgv_shared_event *fgv_shared_event_find(CUevent event)
{
    if (__builtin_expect(atomic_load_explicit(&fgv_nr_shared_events, memory_order_relaxed) == 0, 1)) {
        return NULL;
    }
    return fgv_shared_event_of(fgv_handle_object(FGV_HANDLE_EVENT, fgv_handle_number(event)));
}

static inline struct fgv_event *fgv_shared_event_row(const struct fgv_shared_event *shared)
{
    return &fgv_guest.region.events[shared->handle.index];
}

/* Else no other program had it any more, and the row has gone to somebody: it is an event like any other. */
static inline bool fgv_shared_event_has_row(const struct fgv_shared_event *shared)
{
    return atomic_load(&fgv_shared_event_row(shared)->key) == shared->handle.key;
}

/* Gives up one that the program destroyed, whose last record others may still wait for. */
void fgv_shared_event_destroy(struct fgv_shared_event *shared);
/* Forgets it with its context, if that is this one: nobody will write any more what is outstanding there. False: it is
 * another's. */
bool fgv_shared_event_forget(struct fgv_shared_event *shared, const struct fgv_context *context);

#endif
