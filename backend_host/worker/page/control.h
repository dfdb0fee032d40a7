/* The daemon does this with the control page besides moving the grant; see control.c. Indices are the caller's to
 * bound. */
#ifndef BACKEND_HOST_CONTROL_H
#define BACKEND_HOST_CONTROL_H

#include "page/grant.h"

/* It is a multiple of the page, as mmap and memfd want it. */
#define FGW_CONTROL_BYTES ((sizeof(struct fgw_control) + 4095u) / 4096u * 4096u)

/* cffi: begin */
struct fgw_vgpu_reading {
    uint64_t used_ns;
    uint64_t held_ns;
    uint64_t charged_until_ns;
    uint64_t nr_grants;
    uint64_t memory_bytes;
    uint64_t quota_bytes;
    uint64_t waiting_since_ns;
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
    uint32_t phase;
    uint64_t stalled_since_ns;
    char program[64];
    struct fgw_counters counters;
};

/* Waits for the daemon's bell until other vGPUs than those of `active` have or want the GPU; when it rings without
 * that, for 30 ms at most. */
uint32_t fgw_control_wait_news(struct fgw_control *control, uint32_t seen, uint64_t active, uint64_t timeout_ns);
/* Mapped pages, or NULL with errno set (EPROTO: no control page of this version). */
struct fgw_control *fgw_control_format(int fd, uint64_t slice_ns, bool is_preemptive);
struct fgw_control *fgw_control_open(int fd);
void fgw_control_close(struct fgw_control *control);

/* Slot numbers, or -1 when all are taken. */
int fgw_control_vgpu_take(struct fgw_control *control, uint64_t quota_bytes);
void fgw_control_vgpu_free(struct fgw_control *control, uint32_t index);
void fgw_control_set_quota(struct fgw_control *control, uint32_t index, uint64_t quota_bytes);
int fgw_control_worker_take(struct fgw_control *control);
void fgw_control_worker_free(struct fgw_control *control, uint32_t slot);
void fgw_control_worker_command(struct fgw_control *control, uint32_t slot, uint32_t command);

/* It returns false when the slot is free. */
bool fgw_control_vgpu_read(struct fgw_control *control, uint32_t index, struct fgw_vgpu_reading *reading);
bool fgw_control_worker_read(struct fgw_control *control, uint32_t slot, struct fgw_worker_reading *reading);

/* Sets how the vGPU stands when it waits; see layout.h. */
void fgw_control_set_standing(struct fgw_control *control, uint32_t index, double standing, double per_ns);
/* Tells its standing now, with what it has used. */
double fgw_control_standing(struct fgw_control *control, uint32_t index);
uint64_t fgw_control_slice_ns(struct fgw_control *control);
void fgw_control_set_slice_ns(struct fgw_control *control, uint64_t slice_ns);
/* cffi: end */

#endif
