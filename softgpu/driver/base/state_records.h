/* The file of a device as a process has it (state.h), and its locks. */
#ifndef SOFTGPU_STATE_RECORDS_H
#define SOFTGPU_STATE_RECORDS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SGP_STATE_COUNTS_BYTE  0
#define SGP_STATE_RUNNING_BYTE 1

#define SGP_STATE_MAGIC    0x3255504754464f53ull
#define SGP_STATE_NR_SLOTS 4096
#define SGP_STATE_NR_RUNS  128

/* Tickets stand here, behind the end (turn.c). */
#define SGP_STATE_TICKETS_OFFSET ((off_t)1 << 32)

#define SGP_NR_MULTIPROCESSORS 16

struct sgp_state_header {
    uint64_t magic;
    uint64_t next_ticket;
    uint64_t busy_ns;    /* GPU time, all processes, since the file was made */
    uint64_t nr_kernels; /* served */
    uint32_t failure;    /* a CUresult: what calls of the device give from now on; 0: it is in order. Tests write it */
    uint32_t reserved[7];
};

struct sgp_state_slot {
    uint64_t bytes;
    uint64_t id; /* of its holder: a random number that ends in the slot's, 0 in none */
};

/* A kernel of a space (run.h). */
struct sgp_state_run {
    uint64_t ticket;
    uint32_t is_low;
    uint32_t nr_waiting;                    /* who ask for a place for a block, and have none */
    uint64_t units[SGP_NR_MULTIPROCESSORS]; /* that its blocks take */
};

#define SGP_STATE_SLOTS_OFFSET ((off_t)sizeof(struct sgp_state_header))
#define SGP_STATE_RUNS_OFFSET  (SGP_STATE_SLOTS_OFFSET + (off_t)(SGP_STATE_NR_SLOTS * sizeof(struct sgp_state_slot)))

/* Whose slot: of a process, or of shared memory. A slot whose id is another one was given up by all. */
struct sgp_state_holder {
    uint64_t slot;
    uint64_t id;
};

struct sgp_run;

struct sgp_state {
    int fd;
    pthread_mutex_t counts; /* the lock on the file does not keep this process's threads from each other */
    int slot;               /* -1: none yet */
    struct sgp_state_slot own;
    uint64_t identity[2];
    struct sgp_run *runs;                            /* of this process */
    uint32_t nr_running;                             /* of those */
    uint32_t nr_holds[SGP_STATE_NR_SLOTS];           /* of shared memory, by this process */
    struct sgp_state_slot slots[SGP_STATE_NR_SLOTS]; /* as read last; callers may stand on small stacks */
};

/* As fcntl, with a lock of this open file; goes on after signals. */
int sgp_state_lock_bytes(int fd, int command, short type, off_t start, off_t length);
void sgp_state_lock_counts(struct sgp_state *state);
void sgp_state_unlock_counts(struct sgp_state *state);

/* False: there is none, or rubbish, and `header` is that of a new file. */
bool sgp_state_header_read(const struct sgp_state *state, struct sgp_state_header *header);
/* But for the failure: a test may write that at any time, without the lock. */
void sgp_state_header_write(const struct sgp_state *state, const struct sgp_state_header *header);

/* Of turn.c, with the counts locked. */
uint64_t sgp_state_take_ticket(struct sgp_state *state); /* and locks its byte */
void sgp_state_count_kernel(struct sgp_state *state, uint64_t busy_ns);

#endif
