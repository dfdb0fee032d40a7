/*
 * What one process asks of another: to be taken off its devices and put back.
 *
 * Each process has a memory file for that (shared_file.h), of which a thread of its own reads what it is asked, and
 * does it. Whoever asks finds the file among the descriptors that /proc shows of the process, so that the kernel says
 * who may: root, and processes of the same user. It goes through all walls, since nothing of it is a name in the
 * process's namespaces. The thread sleeps in between, on a word of the file.
 *
 * A process may write what it likes into its own file, so what it says of itself is checked, and may be a lie: that it
 * has done what it was asked, or, for as long as it likes, that it is at it.
 *
 * Wrong when: /proc is not mounted where somebody asks, or there is no CAP_SYS_PTRACE for a process of another user or
 * one that cannot be dumped. Or a process is killed while it asks, and a child has its descriptors: others wait for
 * that.
 */
#ifndef SOFTGPU_REMOTE_H
#define SOFTGPU_REMOTE_H

#include "device/device.h"

enum sgp_checkpoint_step {
    SGP_CHECKPOINT_LOCK,
    SGP_CHECKPOINT_TAKE,
    SGP_CHECKPOINT_RESTORE,
    SGP_CHECKPOINT_UNLOCK,
};

/* A call with its arguments, as it goes to another process. */
struct sgp_checkpoint_request {
    uint32_t step;
    uint32_t is_valid;   /* what can be said of the arguments without knowing the process */
    uint32_t timeout_ms; /* 0: none */
    uint32_t nr_pairs;
    CUcheckpointGpuPair pairs[SGP_MAX_DEVICES];
};

/* Serves a request; a lock that takes long asks now and then whether it is wanted still, and ends when it is not. */
typedef CUresult sgp_remote_serve(const struct sgp_checkpoint_request *request, bool (*is_given_up)(void));

/* From now on this process is asked by others; false: there is no room for it. */
bool sgp_remote_open(sgp_remote_serve *serve);
void sgp_remote_close_in_child(void);
void sgp_remote_show(CUprocessState state); /* to whoever looks */
int sgp_remote_thread(void);                /* that serves */

/* Has another process take the step; how that went. Without the lock. */
CUresult sgp_remote_ask(int process, const struct sgp_checkpoint_request *request);
/* Which thread of another process serves, and that one's state. Without the lock. */
CUresult sgp_remote_look(int process, int *thread, CUprocessState *state);

#endif
