/*
 * The channels of this very process on NVIDIA's kernel driver, found as the driver library makes them, and kept off the
 * device.
 *
 * Loaded before libc, by LD_PRELOAD or as a part of a program, channels.c stands before libc's ioctl and remembers
 * which clients, channel groups and channels are made through /dev/nvidiactl. It changes no request. The controls are
 * those that the published driver lets an unprivileged owner of a channel use (open-gpu-kernel-modules, ctrla06c.h and
 * ctrl2080fifo.h); they name objects of this process alone.
 *
 * A group is scheduled as one: all that a context computes is in one. Copies are in groups of their own and go on.
 *
 * Wrong when the driver library makes system calls on its own, without libc: then nothing is found, and every control
 * answers that.
 */
#ifndef BACKEND_HOST_CHANNELS_H
#define BACKEND_HOST_CHANNELS_H

#include <stdbool.h>
#include <stdint.h>

/* What a control answered. `error` is an errno, `status` the driver's own verdict: both 0 when it did as told. */
struct fgv_channels_answer {
    int error;
    uint32_t status;
};

static inline bool fgv_channels_did(const struct fgv_channels_answer *answer)
{
    return answer->error == 0 && answer->status == 0;
}

/* Takes all groups that compute off the device and keeps them off, or lets them on again. ENODEV without one,
 * ENOBUFS where there are more objects than are remembered. When one cannot be taken off none is. */
struct fgv_channels_answer fgv_channels_set_off(bool is_off);
typedef struct fgv_channels_answer (*fgv_channels_set_off_fn)(bool is_off);

/* Around a time in which the driver may take this process off its device and put it back, by a checkpoint: it closes
 * what it had, and makes everything anew. At the end of it what is not of that time is forgotten, if there is anything
 * of that time that computes; if not there was no checkpoint. */
void fgv_channels_renew(bool is_over);
typedef void (*fgv_channels_renew_fn)(bool is_over);

#endif
