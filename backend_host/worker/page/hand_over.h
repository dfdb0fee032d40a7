/*
 * The last hand-overs, for people: who had the grant, who got it, why, and how long nobody used it. Nothing is decided
 * by them.
 *
 * Wrong when: whoever handed over died before it wrote, or a worker that its guest took over wrote: then an entry is
 * missing, or says what never was.
 */
#ifndef BACKEND_HOST_HAND_OVER_H
#define BACKEND_HOST_HAND_OVER_H

#include "page/layout.h"

/* cffi: begin */
struct fgw_hand_over_reading {
    uint32_t sequence;
    uint32_t giver; /* vGPU index + 1, or 0 */
    uint32_t taker;
    uint32_t why;        /* enum fgw_why; bounded */
    uint32_t phase;      /* of the worker that ended the turn, as fgw_phase_word names them; 0: none did */
    uint32_t is_entered; /* a worker of the new holder came; `gap_ns` tells after how long */
    uint64_t at_ns;
    uint64_t gap_ns;
};

/* Fills `readings`, of FGW_NR_HAND_OVERS, with what is kept of the hand-overs after `sequence` and up to the grant that
 * is held now, oldest first, and returns how many they are. */
uint32_t fgw_control_hand_overs(struct fgw_control *control, uint32_t sequence, struct fgw_hand_over_reading *readings);
/* cffi: end */

/* Writes down that the grant `word` became `next`. Whoever has changed the word does so. */
void fgw_hand_over_note(struct fgw_control *control, uint64_t word, uint64_t next, uint32_t why);
/* A worker of the holder entered under this word. The first one is kept. */
void fgw_hand_over_enter(struct fgw_control *control, uint64_t word, uint64_t now_ns);
/* Counts a worker's wait for the turn that it has now; 0: it had it at once, which is no wait. */
void fgw_hand_over_waited(struct fgw_worker_slot *slot, uint64_t waited_ns);

#endif
