/*
 * Where a worker stands: towards the grant, and where its work is. One word says both, and whatever the floor `turn`
 * decides it decides by that word. The worker's slot of the control page shows it.
 *
 * FGW_TRANSITIONS is the whole machine: what is not in it never happens. docs/grants.md has its table and picture from
 * here.
 */
#ifndef BACKEND_HOST_PHASE_H
#define BACKEND_HOST_PHASE_H

#include <stdbool.h>
#include <stdint.h>

/* The worker's bit in the page: in none of both sets, in `waiting`, or in `users`. */
enum fgw_stand { FGW_STANDS_OUT, FGW_WAITS, FGW_USES };

/* What is charged of its work on the device: there is none or none that is known of; as it goes; it is paid for; it is
 * off the device. */
enum fgw_work { FGW_WORK_NONE, FGW_WORK_ON, FGW_WORK_PAID, FGW_WORK_OFF };

/* X(PHASE, word, stand, work, meaning) */
#define FGW_PHASES(X)                                                                                                  \
    X(OUT, "out", FGW_STANDS_OUT, FGW_WORK_NONE, "has nothing to submit, or what needs no turn")                       \
    X(WAITING, "waiting", FGW_WAITS, FGW_WORK_NONE, "has something to submit, and waits for its turn")                 \
    X(READY, "ready", FGW_USES, FGW_WORK_NONE, "has its turn, and nothing on the device at this moment")               \
    X(RUNNING, "running", FGW_USES, FGW_WORK_ON, "has its turn, and work on the device")                               \
    X(IDLE, "idle", FGW_USES, FGW_WORK_NONE, "has nothing to submit, and keeps its turn for a moment")                 \
    X(DRAINING, "draining", FGW_USES, FGW_WORK_ON, "its turn is over; what it has on the device is let end")           \
    X(STOPPING, "stopping", FGW_USES, FGW_WORK_ON, "its turn is over; its kernel was told to stop, or to give way")    \
    X(TAIL, "tail", FGW_STANDS_OUT, FGW_WORK_PAID, "little was left to end in another's turn, paid for in advance")    \
    X(TAIL_WAITING, "tail-waiting", FGW_WAITS, FGW_WORK_PAID, "the same, and it waits for its next turn")              \
    X(BESIDE, "beside", FGW_STANDS_OUT, FGW_WORK_ON, "its work goes on outside a turn of its own")                     \
    X(BESIDE_WAITING, "beside-waiting", FGW_WAITS, FGW_WORK_ON, "the same, and it waits for its next turn")            \
    X(OFF_OUT, "off-out", FGW_STANDS_OUT, FGW_WORK_OFF, "its limit holds it back, and its work off the device")        \
    X(OFF_WAITING, "off-waiting", FGW_WAITS, FGW_WORK_OFF, "its work was taken off the device until its next turn")    \
    X(OFF_USER, "off-user", FGW_USES, FGW_WORK_OFF, "its turn has come, and its work is to be brought back")

/* X(FROM, TO, reason) */
#define FGW_TRANSITIONS(X)                                                                                             \
    X(OUT, WAITING, "it has something to submit, and the grant is another's or closed")                                \
    X(OUT, READY, "it has something to submit, and the grant is free, or its vGPU's own and open")                     \
    X(OUT, BESIDE, "its work begins outside a turn: a value has come that its stream waited for, or it is critical")   \
    X(WAITING, OUT, "what waited was dropped, is gated, or goes beside as a copy")                                     \
    X(WAITING, READY, "its turn has come")                                                                             \
    X(WAITING, BESIDE_WAITING, "a value has come that its stream waited for")                                          \
    X(READY, RUNNING, "it has submitted")                                                                              \
    X(READY, IDLE, "it has nothing to submit")                                                                         \
    X(READY, OUT, "its turn is over or given back, and it has nothing to submit; or it steps aside")                   \
    X(READY, WAITING, "its turn is over, and it has more to submit")                                                   \
    X(RUNNING, READY, "all its work has ended")                                                                        \
    X(RUNNING, DRAINING, "the slice is over, it gives way to a newcomer, or the grant was closed or taken away")       \
    X(IDLE, READY, "it has something to submit again")                                                                 \
    X(IDLE, RUNNING, "a value has come that its stream waited for")                                                    \
    X(IDLE, OUT, "its pause lasts too long, or its turn is over or given back")                                        \
    X(IDLE, WAITING, "its turn is over, and it has something to submit again")                                         \
    X(DRAINING, READY, "all its work has ended: it leaves at its next look")                                           \
    X(DRAINING, RUNNING, "the grant came back before its work ended")                                                  \
    X(DRAINING, STOPPING, "it has a kernel there that is told to stop, or to give way")                                \
    X(DRAINING, TAIL, "what is left takes no longer than a hand-over")                                                 \
    X(DRAINING, TAIL_WAITING, "the same, and it has more to submit")                                                   \
    X(DRAINING, BESIDE, "its work goes on for long, and nobody is known to need the device alone")                     \
    X(DRAINING, BESIDE_WAITING, "the same, and it has more to submit")                                                 \
    X(DRAINING, OFF_WAITING, "its work goes on for long, and the next one will use all of its turn")                   \
    X(DRAINING, OFF_OUT, "its work goes on for long, and its vGPU has used up its part")                               \
    X(STOPPING, READY, "it has stopped")                                                                               \
    X(STOPPING, RUNNING, "the grant came back before it stopped")                                                      \
    X(STOPPING, DRAINING, "it does not stop in time, and is let end as other kernels are")                             \
    X(STOPPING, TAIL, "it does not stop in time, and little is left")                                                  \
    X(STOPPING, TAIL_WAITING, "the same, and it has more to submit")                                                   \
    X(STOPPING, BESIDE, "it does not stop in time, and goes on for long")                                              \
    X(STOPPING, BESIDE_WAITING, "the same, and it has more to submit")                                                 \
    X(STOPPING, OFF_WAITING, "it does not stop in time, and the next one will use all of its turn")                    \
    X(STOPPING, OFF_OUT, "it does not stop in time, and its vGPU has used up its part")                                \
    X(TAIL, OUT, "its work has ended")                                                                                 \
    X(TAIL, TAIL_WAITING, "it has something to submit")                                                                \
    X(TAIL, RUNNING, "it has something to submit, and the grant is free, or its vGPU's own and open")                  \
    X(TAIL, BESIDE, "it lasts longer than was paid for")                                                               \
    X(TAIL_WAITING, WAITING, "its work has ended")                                                                     \
    X(TAIL_WAITING, TAIL, "what waited was dropped, is gated, or goes beside as a copy")                               \
    X(TAIL_WAITING, RUNNING, "its turn has come")                                                                      \
    X(TAIL_WAITING, BESIDE_WAITING, "it lasts longer than was paid for")                                               \
    X(BESIDE, OUT, "its work has ended")                                                                               \
    X(BESIDE, BESIDE_WAITING, "it has something to submit")                                                            \
    X(BESIDE, RUNNING, "it has something to submit, and the grant is free, or its vGPU's own and open")                \
    X(BESIDE, OFF_WAITING, "its work is in the way of the holder's")                                                   \
    X(BESIDE, OFF_OUT, "its vGPU has used up its part, and its work goes on for long")                                 \
    X(BESIDE, OFF_USER, "its work was taken off the device while the grant became free")                               \
    X(BESIDE_WAITING, WAITING, "its work has ended")                                                                   \
    X(BESIDE_WAITING, BESIDE, "what waited was dropped, is gated, or goes beside as a copy")                           \
    X(BESIDE_WAITING, RUNNING, "its turn has come")                                                                    \
    X(BESIDE_WAITING, OFF_WAITING, "its work is in the way of the holder's")                                           \
    X(BESIDE_WAITING, OFF_USER, "its work was taken off the device while the grant became free")                       \
    X(OFF_WAITING, OFF_USER, "its turn has come")                                                                      \
    X(OFF_WAITING, OFF_OUT, "another worker has used up what its vGPU may have")                                       \
    X(OFF_OUT, OFF_WAITING, "its limit lets it go on, and the grant is another's or closed")                           \
    X(OFF_OUT, OFF_USER, "its limit lets it go on, and the grant is free, or its vGPU's own and open")                 \
    X(OFF_OUT, BESIDE, "its client has ended: no driver lets go of what stands still")                                 \
    X(OFF_WAITING, BESIDE_WAITING, "its client has ended: no driver lets go of what stands still")                     \
    X(OFF_USER, RUNNING, "its work is on the device again")                                                            \
    X(OFF_USER, OFF_WAITING, "the grant was taken away before it was used")

enum fgw_phase {
#define FGW_PHASE_NAME(name, word, stand, work, meaning) FGW_PHASE_##name,
    FGW_PHASES(FGW_PHASE_NAME)
#undef FGW_PHASE_NAME
        FGW_NR_PHASES
};

_Static_assert(FGW_PHASE_OUT == 0, "a fresh slot says so");

static inline enum fgw_stand fgw_phase_stand(enum fgw_phase phase)
{
    switch (phase) {
#define FGW_PHASE_STAND(name, word, stand, work, meaning)                                                              \
    case FGW_PHASE_##name:                                                                                             \
        return stand;
        FGW_PHASES(FGW_PHASE_STAND)
#undef FGW_PHASE_STAND
    default:
        return FGW_STANDS_OUT;
    }
}

static inline enum fgw_work fgw_phase_work(enum fgw_phase phase)
{
    switch (phase) {
#define FGW_PHASE_WORK(name, word, stand, work, meaning)                                                               \
    case FGW_PHASE_##name:                                                                                             \
        return work;
        FGW_PHASES(FGW_PHASE_WORK)
#undef FGW_PHASE_WORK
    default:
        return FGW_WORK_NONE;
    }
}

/* Gives the phase of this stand with this work. With its turn it is READY or RUNNING: what else there is of those is
 * entered by name. */
enum fgw_phase fgw_phase_of(enum fgw_stand stand, enum fgw_work work);

/* Tells whether the table has this transition. */
bool fgw_phase_may_follow(enum fgw_phase from, enum fgw_phase to);

/* cffi: begin */
/* Gives the word for a number in a slot, which a hostile worker may have written. */
const char *fgw_phase_word(uint32_t phase);
/* cffi: end */

#endif
