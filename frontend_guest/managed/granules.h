/*
 * Managed memory between the program and the device.
 *
 * Before work that may use it, what the program has written since goes to the device in one go, and all of it is taken
 * from the program. What the program touches afterwards is brought back, as soon as the work that was under way has
 * ended: 64 KiB, and as much as lies at hand beside it already. So work before which nothing was touched costs one
 * load.
 *
 * Natively program and device may use it at the same time. Here the program waits for the device then, and so sees what
 * it might see natively, too, unless the device's work waits for the program. A host function does not wait: what is
 * before it in its stream has ended; what other streams do meanwhile with the same 64 KiB may be lost, or unseen.
 *
 * Wrong when: a kernel waits for what the program writes while it runs; work of another context than that in which the
 * memory was allocated is under way when the program touches it.
 */
#ifndef FRONTEND_GUEST_GRANULES_H
#define FRONTEND_GUEST_GRANULES_H

#include <stdbool.h>
#include <stdint.h>

#include "managed/area.h"

struct fgv_context;

/* What the calling thread was when it entered. */
struct fgv_entered {
    struct fgv_context *context;
    uint64_t current;
    uint32_t was_ours;
    bool has_door;
};

/* Between these, areas are the calling thread's, and its calls are this library's own. Not for host functions. */
void fgv_granules_enter(struct fgv_entered *entered);
void fgv_granules_leave(const struct fgv_entered *entered);
/* All of that for each area, which may go. */
void fgv_granules_each(void (*visit)(struct fgv_area *area, uint64_t what), uint64_t what);

/* ---- between them ---- */

/* Before the first area of the process is made. */
void fgv_granules_open(void);
/* An area was made, and all of it is zero. */
void fgv_granules_begin(void);
/* An area was made whose contents are in the shadow, and on the device unless they were written since. */
void fgv_granules_begin_given(struct fgv_area *area, bool is_written);
/* It is about to be dropped. */
void fgv_granules_end(struct fgv_area *area);
/* Waits, in all contexts, for the work that is under way, and lets none begin until _leave. The program may touch the
 * area meanwhile, and write to what it has. False: work is being captured, which would end. */
bool fgv_granules_quieten(struct fgv_area *area);
/* Brings all of it back. */
void fgv_granules_bring(struct fgv_area *area);
/* The program will use these bytes on the CPU next: a touch brings all of them. */
void fgv_granules_want(struct fgv_area *area, uint64_t offset, uint64_t bytes);

/* ---- */

/* Before a call is sent, while somebody watches (call.h). */
void fgv_granules_before(uint16_t call);

#endif
