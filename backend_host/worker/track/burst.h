/*
 * Bursts of GPU time: what a program uses between two moments in which it has nothing on the device and wants nothing.
 *
 * A pause that is shorter than a switch to another vGPU and back, or than a twentieth of what its bursts last, ends
 * none. Waiting for a turn, for memory or for a limit is no pause, so a burst may span turns; the rest of a kernel that
 * was withdrawn belongs to it. The last 32 are kept, and the pauses behind them (Gemini, section 3.5.2).
 *
 * Wrong when: a program never pauses. It has no burst then, and nothing is published.
 */
#ifndef BACKEND_HOST_BURST_H
#define BACKEND_HOST_BURST_H

#include <stdbool.h>
#include <stdint.h>

/* Ninety percent of 32 are 28: enough to tell a rule from an exception, few enough to follow a program that changes. */
#define FGW_BURSTS_KEPT 32u

struct fgw_bursts {
    uint64_t begun_gpu_ns;   /* GPU time so far, as the burst at hand began */
    uint64_t quiet_gpu_ns;   /* the same, as the pause at hand began */
    uint64_t quiet_since_ns; /* 0: there is none */
    uint64_t burst_ns[FGW_BURSTS_KEPT], gap_ns[FGW_BURSTS_KEPT];
    uint32_t nr; /* that have ended; the newest is kept at (nr - 1) % FGW_BURSTS_KEPT */
};

struct fgw_burst_view {
    uint64_t percentile_ns; /* nine in ten are no longer */
    uint64_t last_ns;
    uint64_t gap_ns; /* mean */
};

/* The device has none of its work from now on, and it wants nothing so far. */
void fgw_burst_pause(struct fgw_bursts *bursts, uint64_t gpu_ns, uint64_t now_ns);
/* It wants something again. True: that was a pause, and ended a burst. */
bool fgw_burst_resume(struct fgw_bursts *bursts, uint64_t switch_ns, uint64_t now_ns);
/* What is known; zeros before a burst has ended. */
struct fgw_burst_view fgw_burst_view(const struct fgw_bursts *bursts);

#endif
