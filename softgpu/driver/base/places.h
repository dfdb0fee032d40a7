/* Places of a run's blocks on multiprocessors: run.h says what they are. */
#ifndef SOFTGPU_PLACES_H
#define SOFTGPU_PLACES_H

#include "base/run_records.h"

/* A multiprocessor has so many units: the least number that all of 1 to 32, the blocks that may fit one, divide. */
#define SGP_MULTIPROCESSOR_UNITS UINT64_C(144403552893600)
/* Between looks of whoever waits. */
#define SGP_RUN_LOOK_NS 100000

#define SGP_NO_PLACE UINT32_MAX

/* What a block asks for, beside leaving a place. */
enum sgp_place_wish {
    SGP_PLACE_WANTED = 1 << 0,
    SGP_PLACE_WAITED = 1 << 1, /* the one who asks was refused the last time */
};

/* Leaves the place on multiprocessor `left`, if the kernel has one there, and takes another one if that is the wish.
 * The multiprocessor; SGP_NO_PLACE: none was wanted, or the asker now waits for one, until he asks again. Any thread.
 */
uint32_t sgp_run_place(struct sgp_run *run, uint32_t left, uint32_t wish);

/* With the counts locked: takes places for so many blocks at once. False: there is no room, or one who comes before
 * waits for it; the run waits now. */
bool sgp_places_keep(struct sgp_run *run, uint64_t nr);

#endif
