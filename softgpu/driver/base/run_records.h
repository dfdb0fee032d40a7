/* A run (run.h) as its process has it, and its record in the device's file. */
#ifndef SOFTGPU_RUN_RECORDS_H
#define SOFTGPU_RUN_RECORDS_H

#include "base/state_records.h"

struct sgp_run {
    struct sgp_run *next; /* of this process on this device */
    struct sgp_state *state;
    int number; /* of its record in the file; -1: none yet */
    bool runs;
    bool keeps; /* places for blocks that are still to come: all must be there at once */
    struct sgp_state_run record;
    uint64_t units;                           /* that a block takes */
    uint32_t nr_held[SGP_NR_MULTIPROCESSORS]; /* places, by blocks */
    uint32_t nr_kept[SGP_NR_MULTIPROCESSORS];
};

/* With the counts locked. */
/* A record that nobody has, which is locked from now on; false: all are taken. */
bool sgp_run_take_record(struct sgp_run *run);
void sgp_run_write(const struct sgp_run *run);
/* Empties the record, and gives it back. */
void sgp_run_give_record(struct sgp_run *run);
/* Somebody has it. */
bool sgp_run_lives(const struct sgp_state *state, int number);
void sgp_run_bury(const struct sgp_state *state, int number); /* it is of one who does not live */

/* Whether another process has such bytes locked for writing, or at all if `type` is F_WRLCK; from where on. */
bool sgp_run_others_lock(const struct sgp_state *state, short type, off_t start, off_t length, off_t *found);

#endif
