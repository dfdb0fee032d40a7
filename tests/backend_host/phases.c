/* A worker's phase by itself, for test_phases.py: a worker with a slot of its own, on no page. */
#include "turn/change.h"
#include "turn/phase.h"

static struct fgw_worker_slot slot;
static struct fgw_turn turn;
static struct fgw_worker worker = {.turn = &turn, .slot = &slot, .grantee.slot = &slot};

const uint32_t nr_phases = FGW_NR_PHASES;

uint32_t stand_of(uint32_t phase)
{
    return fgw_phase_stand((enum fgw_phase)phase);
}

uint32_t work_of(uint32_t phase)
{
    return fgw_phase_work((enum fgw_phase)phase);
}

bool may_follow(uint32_t from, uint32_t to)
{
    return fgw_phase_may_follow((enum fgw_phase)from, (enum fgw_phase)to);
}

/* Gives what the slot shows then. */
uint32_t change(uint32_t from, uint32_t to)
{
    turn.phase = (enum fgw_phase)from;
    fgw_phase_change(&worker, (enum fgw_phase)to);
    return slot.phase;
}

uint64_t nr_bad_phases(void)
{
    return slot.nr_bad_phases;
}
