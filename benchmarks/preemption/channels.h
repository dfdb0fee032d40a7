/*
 * The channels of this very process on NVIDIA's kernel driver, found as the driver library makes them, and held back.
 *
 * Linked into a program, channels.c stands before libc's ioctl and remembers which clients, channel groups and channels
 * are made through /dev/nvidiactl. It changes no request. The controls below are those that the published driver lets
 * an unprivileged owner of a channel use (open-gpu-kernel-modules, ctrla06c.h and ctrl2080fifo.h); they name objects of
 * this process alone.
 *
 * A group is scheduled as one: all that a context computes is in one. Wrong when the driver library makes system calls
 * on its own, without libc: then nothing is found, and every control answers that.
 */
#ifndef CHANNELS_H
#define CHANNELS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a control answered. `error` is an errno, `status` the driver's own verdict: both 0 when it did as told. */
struct channels_answer {
    int error;
    uint32_t status;
    double us; /* that the call took */
};

/* How many groups compute, and how many channels they have. */
struct channels_found {
    unsigned nr_groups;
    unsigned nr_computing;
    unsigned nr_channels;
};

struct channels_found channels_find(void);

/* Of the group that computes; ENODEV without one, EEXIST where it is not the only one. */
struct channels_answer channels_timeslice(uint64_t *us);
struct channels_answer channels_set_timeslice(uint64_t us);

/* Takes the group off the device, where it may be scheduled again at once; waits until it is off. */
struct channels_answer channels_preempt(uint32_t limit_us);

/* Takes it off and keeps it off, until it is let on again. */
struct channels_answer channels_hold(bool is_held);

#ifdef __cplusplus
}
#endif

#endif
