/*
 * What workers say of themselves beside what the grant says of them, for the daemon's auditor (auditor.py).
 *
 * The grant is writable by all workers, so nothing in it tells who wrote it. What lies in a vGPU's own object only its
 * own workers can have written: its charges, and each worker's phase. So a claim is evidence against its vGPU, and
 * where the grant differs from what the owner of a bit says, the owner is right.
 *
 * A worker changes its bit a moment before or after its phase. So a difference is one that two looks have seen, and is
 * looked at once more before it is mended.
 *
 * Wrong when: a worker loses its CPU for longer than two looks between the two stores. Its bit is then put back to what
 * its phase says, and put right by the next two looks.
 */
#ifndef BACKEND_HOST_AUDIT_H
#define BACKEND_HOST_AUDIT_H

#include "page/layout.h"

/* cffi: begin */
/* What a vGPU says of itself; `generation` is the daemon's: another vGPU has another. */
struct fgw_claim {
    uint64_t used_ns;
    uint64_t held_ns; /* as it charged itself, without what others count of unused grants */
    uint64_t charged_until_ns;
    uint64_t limited_until_ns;
    uint32_t limit_permille; /* the daemon's; 0: none */
    uint32_t nr_limits;      /* that the daemon has set: with another one the word may be another, too */
    uint32_t generation;     /* 0: there is none */
    uint32_t nr_workers;
    uint32_t nr_unused; /* as others count it */
    uint32_t space;     /* the daemon's, as is_urgent; 0: it is in none */
    double standing, standing_per_ns;
    uint64_t turn_ns; /* the daemon's: how long its turn may last while others wait */
    uint64_t waiting_since_ns;
    bool is_urgent;
    bool uses, waits, works; /* one of its workers says that it has its turn, that it waits, that it has work there */
};

struct fgw_audit {
    uint64_t at_ns;
    uint64_t word;
    uint32_t holder;     /* vGPU index + 1, or 0 */
    bool is_apart;       /* vGPUs are: the daemon itself wrote what is seen here of the grant */
    bool is_word_wrong;  /* no worker writes such a word */
    bool is_start_ahead; /* the turn is said to begin in the future */
    bool is_spare_ahead; /* a holder is said to be kept off the device in the future */
    uint64_t users[4];   /* bits that differ from what their owners say */
    uint64_t waiting[4];
    uint64_t running[4];
    struct fgw_claim claims[64];
};

void fgw_audit_look(struct fgw_control *control, struct fgw_audit *audit);
/* Mends what both looks found wrong and is so still. Gives how many words were changed. */
uint32_t fgw_audit_mend(struct fgw_control *control, const struct fgw_audit *before, const struct fgw_audit *now);
/* Hands the grant on to the next one that waits, if the word is still that. `is_used`: the holder came for it. */
bool fgw_audit_take(struct fgw_control *control, uint64_t word, bool is_used);
/* Puts back how many grants a vGPU did not use. */
void fgw_audit_set_unused(struct fgw_control *control, uint32_t vgpu, uint32_t nr_unused);
/* cffi: end */

#endif
