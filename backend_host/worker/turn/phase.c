#include "turn/phase.h"

_Static_assert(FGW_NR_PHASES <= 16, "a phase has four bits in the grant word");

static const char *const words[FGW_NR_PHASES] = {
#define WORD(name, word, stand, work, meaning) [FGW_PHASE_##name] = word,
    FGW_PHASES(WORD)
#undef WORD
};

/* What may follow each. */
static const bool transitions[FGW_NR_PHASES][FGW_NR_PHASES] = {
#define ALLOWED(from, to, reason) [FGW_PHASE_##from][FGW_PHASE_##to] = true,
    FGW_TRANSITIONS(ALLOWED)
#undef ALLOWED
};

static const enum fgw_phase by_stand_and_work[FGW_USES + 1][FGW_WORK_OFF + 1] = {
    [FGW_STANDS_OUT] = {FGW_PHASE_OUT, FGW_PHASE_BESIDE, FGW_PHASE_TAIL, FGW_PHASE_OFF_OUT},
    [FGW_WAITS] = {FGW_PHASE_WAITING, FGW_PHASE_BESIDE_WAITING, FGW_PHASE_TAIL_WAITING, FGW_PHASE_OFF_WAITING},
    [FGW_USES] = {FGW_PHASE_READY, FGW_PHASE_RUNNING, FGW_PHASE_RUNNING, FGW_PHASE_OFF_USER},
};

enum fgw_phase fgw_phase_of(enum fgw_stand stand, enum fgw_work work)
{
    return by_stand_and_work[stand][work];
}

bool fgw_phase_may_follow(enum fgw_phase from, enum fgw_phase to)
{
    return transitions[from][to];
}

const char *fgw_phase_word(uint32_t phase)
{
    return phase < FGW_NR_PHASES ? words[phase] : "unknown";
}
