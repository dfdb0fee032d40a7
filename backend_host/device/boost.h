/*
 * Coscheduling, the daemon's end: whoever waits for answers of a vGPU that has just got the GPU runs now.
 *
 * A vGPU whose programs wait for the GPU often (more than 10 answers within 10 ms of its turns) loses its turn when the
 * vCPU that asks next is kept off its CPU by others. So when the GPU is handed to such a vGPU, the thread behind that
 * vCPU is boosted: for the time of the turn, and never longer than a bound. The GPU's scheduler decides alone who is
 * next; the CPU's is only asked to follow.
 *
 * Workers tell, in the control page, who asks and that it pays (grant.c); both are hints from a guest, or from a worker
 * that its guest took over. What they may lead to stands here, in the daemon's own memory: the list of the vGPU's own
 * threads. One thread of the daemon sleeps on a bell that only hand-overs to such vGPUs ring, so nobody else pays.
 *
 * Threads must not stay boosted: each boost ends in this thread, at the next hand-over or when its time is over. A
 * daemon that is killed within that time leaves RESET_ON_FORK set on the thread, by which the next one knows it.
 */
#ifndef BACKEND_HOST_BOOST_H
#define BACKEND_HOST_BOOST_H

#include "page/layout.h"

#define FGW_BOOST_MAX_THREADS 1024u

/* cffi: begin */
/* What a thread becomes, as sched_setattr takes it. What it was before is kept and given back. */
struct fgw_boost_way {
    uint32_t policy;
    int32_t nice;
    uint32_t priority;
    uint32_t sets_reset_on_fork; /* meanwhile */
    uint64_t slice_ns;           /* 0: as it is */
};

/* 0 or an errno: whether this way works on this thread; it is as it was afterwards. */
int fgw_boost_try(int32_t tid, const struct fgw_boost_way *way);
/* Makes a thread normal that a daemon which died left boosted. True when it was. */
bool fgw_boost_clear_left_over(int32_t tid);

struct fgw_booster;
/* NULL without memory. limit_ns: no boost lasts longer. */
struct fgw_booster *fgw_booster_new(struct fgw_control *control, uint64_t limit_ns);
void fgw_booster_free(struct fgw_booster *booster);
/* Serves until fgw_booster_stop. */
void fgw_booster_run(struct fgw_booster *booster);
void fgw_booster_stop(struct fgw_booster *booster);
/* The threads behind the vCPUs of a vGPU's virtual machine, in the order of their numbers; the descriptor of its
 * process is the booster's from now on. */
bool fgw_booster_set_vcpus(struct fgw_booster *booster, uint32_t vgpu, const struct fgw_boost_way *way, int pidfd,
                           const int32_t *tids, uint32_t nr);
/* A vGPU of programs of this host: any thread of that user. */
bool fgw_booster_set_user(struct fgw_booster *booster, uint32_t vgpu, const struct fgw_boost_way *way, uint32_t uid);
void fgw_booster_clear(struct fgw_booster *booster, uint32_t vgpu);
/* Boosts so far, and those that were asked for and did not come about: a thread that is not of the list, say. */
void fgw_booster_read(struct fgw_booster *booster, uint32_t vgpu, uint64_t *nr_boosts, uint64_t *nr_refused);
/* cffi: end */

#endif
