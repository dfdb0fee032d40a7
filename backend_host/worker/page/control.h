/* The daemon does this with the control page besides moving the grant; see control.c. Indices are the caller's to
 * bound. */
#ifndef BACKEND_HOST_CONTROL_H
#define BACKEND_HOST_CONTROL_H

#include "page/grant.h"

/* So many shared memory objects a page has: what is decided, the grant, lives, and each vGPU's own. */
#define FGW_CONTROL_OBJECTS (3u + FGW_MAX_VGPUS)

/* cffi: begin */
struct fgw_vgpu_reading {
    uint64_t used_ns;
    uint64_t held_ns;
    uint64_t out_of_turn_ns;
    uint64_t charged_until_ns;
    uint64_t nr_grants;
    uint64_t memory_bytes;
    uint64_t quota_bytes;
    uint64_t waiting_since_ns;
    uint64_t limited_until_ns; /* see allowance.h */
    uint64_t back_ns;          /* its limit keeps it from a turn until then; 0: it does not */
    uint32_t limit_permille;   /* 0: none */
    uint32_t nr_workers;
    uint32_t nr_waiting;
};

struct fgw_worker_reading {
    uint32_t state;
    uint32_t pid;
    uint32_t vgpu;
    uint32_t client;
    uint32_t is_user;
    uint32_t is_waiting;
    uint32_t is_displaced; /* it would wait if its memory were on the device */
    uint32_t is_suspended; /* its memory is to be off the device until its client calls */
    uint32_t sleep;        /* enum fgw_sleep */
    uint64_t laid_bytes;   /* that its contexts took of the device, when they left it the last time */
    uint32_t keeps;        /* enum fgw_keeps, as the worker says */
    uint32_t stage;        /* enum fgw_stage, as the worker says */
    uint32_t bound;        /* enum fgw_bound, as the worker says */
    uint32_t phase;
    uint64_t stalled_since_ns;
    uint64_t ahead_bytes;     /* of its memory, that are on the device that it goes to, too */
    uint64_t fixed_bytes;     /* of the device, that it takes beside linear memory */
    uint64_t allocated_bytes; /* by its client, linear or not */
    char program[64];
    struct fgw_counters counters;
};

/* Waits for the daemon's bell until other vGPUs than those of `active` have or want the GPU; when it rings without
 * that, for 30 ms at most. */
uint32_t fgw_control_wait_news(struct fgw_control *control, uint32_t seen, uint64_t active, uint64_t timeout_ns);
/* A mapped page of FGW_CONTROL_OBJECTS objects, or NULL with errno set (EPROTO: no control page of this version).
 * `format` lays out empty ones, and may write all. `open` is for a worker of one vGPU, whose own object is open for
 * writing, and the grant; instead of the lives it is given its life. `adopt` is for a daemon whose predecessor has
 * died: it may write all, and vGPUs that were apart share the grant again. */
struct fgw_control *fgw_control_format(const int *fds, uint64_t slice_ns, bool is_preemptive);
struct fgw_control *fgw_control_open(const int *fds, uint32_t vgpu);
struct fgw_control *fgw_control_adopt(const int *fds);
void fgw_control_close(struct fgw_control *control);

/* Slot numbers, or -1 when all are taken. */
int fgw_control_vgpu_take(struct fgw_control *control, uint64_t quota_bytes);
void fgw_control_vgpu_free(struct fgw_control *control, uint32_t index);
/* Sets how much of an enum fgw_limited it may have, 0: as much as it likes. */
void fgw_control_set_limit(struct fgw_control *control, uint32_t index, uint32_t limited, uint64_t most);
/* Sets its limit, in thousandths of the GPU; 0: none. What it is to pay back of another limit stays. */
void fgw_control_set_share_limit(struct fgw_control *control, uint32_t index, uint32_t permille);
/* It comes from another Gpu, where what it was charged lasted until then at this limit. */
void fgw_control_set_limited_until(struct fgw_control *control, uint32_t index, uint64_t until_ns);
void fgw_control_set_quota(struct fgw_control *control, uint32_t index, uint64_t quota_bytes);
int fgw_control_worker_take(struct fgw_control *control);
/* Makes the worker a member of the vGPU. Only once for a slot, before the worker opens the page. */
void fgw_control_worker_assign(struct fgw_control *control, uint32_t slot, uint32_t pid, uint32_t vgpu,
                               uint32_t client);
/* Begins the life of the worker in this slot: a descriptor to be given to it and closed here, or -1 with errno set. */
int fgw_control_worker_begin(const struct fgw_control *control, uint32_t slot);
/* Takes back everything that a dead worker had. */
void fgw_control_repair(struct fgw_control *control, uint32_t slot);
void fgw_control_worker_free(struct fgw_control *control, uint32_t slot);
void fgw_control_worker_command(struct fgw_control *control, uint32_t slot, uint32_t command);

/* It returns false when the slot is free. */
bool fgw_control_vgpu_read(struct fgw_control *control, uint32_t index, struct fgw_vgpu_reading *reading);
bool fgw_control_worker_read(struct fgw_control *control, uint32_t slot, struct fgw_worker_reading *reading);

/* Sets how the vGPU stands when it waits, and how long its turn may last, 0 for a slice; see layout.h. */
void fgw_control_set_standing(struct fgw_control *control, uint32_t index, double standing, double per_ns,
                              uint64_t budget_ns);
/* Tells its standing now, with what it has used. */
double fgw_control_standing(struct fgw_control *control, uint32_t index);
bool fgw_control_is_preemptive(const struct fgw_control *control);
uint64_t fgw_control_slice_ns(struct fgw_control *control);
void fgw_control_set_slice_ns(struct fgw_control *control, uint64_t slice_ns);
/* cffi: end */

#endif
