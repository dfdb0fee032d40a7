/*
 * Spaces: vGPUs that may use the device at the same time. In each there may be a critical vGPU, whose work begins
 * beside whatever the others have there, and best effort, which fills what is left and takes turns as all do.
 *
 * How much the critical one gets of the device while both run is the split (n, k): best effort has k blocks fewer on
 * each of the first n multiprocessors. The daemon decides it; the critical one's worker writes it where kernels of best
 * effort read it (turn/round.h), and says in its account what stands there.
 *
 * A critical vGPU is urgent for as long as what it used ahead of its turns is below its bound. Then its work begins at
 * once beside its space's turns, and whoever else has the device gives way. Beyond that it takes turns as all do.
 */
#ifndef BACKEND_HOST_SPACE_H
#define BACKEND_HOST_SPACE_H

#include "cuda_api/variants.h"
#include "page/grantee.h"

/* Of a split word. This one asks for all of the device, whatever it has. */
#define FGW_SPLIT_WHOLE    UINT32_MAX
#define FGW_SPLIT_N(split) ((split) & ((UINT32_C(1) << FGV_SPLIT_K_SHIFT) - 1))
#define FGW_SPLIT_K(split) ((split) >> FGV_SPLIT_K_SHIFT)

/* A part of some time: `of` in `in`. */
struct fgw_fraction {
    uint64_t of, in;
};

static inline bool fgw_space_is_critical(const struct fgw_grantee *grantee)
{
    return atomic_load_explicit(&grantee->decided->class_number, memory_order_relaxed) == FGW_CLASS_CRITICAL;
}

static inline bool fgw_space_is_best_effort(const struct fgw_grantee *grantee)
{
    return atomic_load_explicit(&grantee->decided->class_number, memory_order_relaxed) == FGW_CLASS_BEST_EFFORT;
}

/* Tells whether two vGPUs, by their numbers, are different ones of the same space. */
bool fgw_space_are_companions(const struct fgw_control *control, uint32_t number, uint32_t other);
/* Tells whether the vGPU with this number goes before all that are not urgent. */
bool fgw_space_is_urgent(const struct fgw_control *control, uint32_t number);

/* Gives the part of the present that this vGPU is charged, as it has work on the device. On a device that preempts each
 * vGPU there gets an equal part, and those of a space one together. In a space a critical one is charged n of N
 * multiprocessors while best effort runs, too, and best effort the rest. */
struct fgw_fraction fgw_space_part(const struct fgw_grantee *grantee);

/* Gives what the daemon wants this critical vGPU's rounds to ask for. */
static inline uint32_t fgw_space_split(const struct fgw_grantee *grantee)
{
    return atomic_load_explicit(&grantee->decided->split, memory_order_relaxed);
}

/* Gives what this critical vGPU's account says: what its rounds ask for, by whoever wrote the word last. */
static inline uint32_t fgw_space_told_split(const struct fgw_grantee *grantee)
{
    return atomic_load(&grantee->account->split);
}

/* So many multiprocessors its device has. */
void fgw_space_know_device(struct fgw_grantee *grantee, uint32_t nr_multiprocessors);
/* Gives what stands there, by the word of the critical vGPU of this best-effort one's space. */
uint32_t fgw_space_standing_split(const struct fgw_grantee *grantee);
/* Rings the bells of those, as the critical vGPU of this index asks for nothing any more. */
void fgw_control_let_in(struct fgw_control *control, uint32_t index);
/* Notes a round of this worker. */
void fgw_space_note_round(const struct fgw_grantee *grantee, uint32_t signature, uint32_t split, uint64_t took_ns);

/* cffi: begin */
/* Gives what rounds of the critical vGPU of this best-effort one's space ask for now, or did a moment ago; 0: nothing,
 * as while that one has used what it may ahead of its turns. */
uint32_t fgw_space_asked_split(const struct fgw_grantee *grantee);
/* Says what rounds of this critical one ask for: what stands in the split word, if there is one. */
void fgw_space_tell_split(const struct fgw_grantee *grantee, uint32_t split);
/* Says whether the split leaves this vGPU, if it is of best effort, no place for work that it has. When rounds ask for
 * nothing any more the bells of such are rung; while vGPUs are apart nobody's can be. */
void fgw_space_tell_kept_out(const struct fgw_grantee *grantee, bool is_kept_out);
/* Tells whether another vGPU of this critical one's space is kept out so. */
bool fgw_space_keeps_out(const struct fgw_grantee *grantee);
/* Tells whether another vGPU of this one's space has the grant. */
bool fgw_space_has_grant(const struct fgw_grantee *grantee);

/* Of the daemon: */
void fgw_control_set_class(struct fgw_control *control, uint32_t index, uint32_t class_number, uint32_t space);
void fgw_control_set_urgent(struct fgw_control *control, uint32_t index, bool is_urgent);
void fgw_control_set_split(struct fgw_control *control, uint32_t index, uint32_t split);
/* What rounds of this critical one asked for stands no more, or its space is about to see to that. */
void fgw_control_take_split_back(struct fgw_control *control, uint32_t index);

struct fgw_round_reading {
    uint32_t signature, split;
    uint64_t took_ns;
};

/* Reads the newest rounds of a worker, oldest first, no more than FGW_NR_ROUNDS. Gives how many there are in
 * `readings`; `nr_rounds` gets how many there have been. */
uint32_t fgw_control_rounds_read(struct fgw_control *control, uint32_t slot, struct fgw_round_reading *readings,
                                 uint64_t *nr_rounds);
/* cffi: end */

#endif
