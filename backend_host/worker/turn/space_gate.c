/* See space_gate.h. */
#include "turn/space_gate.h"

#include "base/count.h"
#include "client/state.h"
#include "page/bell.h"
#include "page/space.h"
#include "track/state.h"
#include "turn/queue.h"
#include "turn/turn.h"

/* A launch waits for no longer. A round that lasts so long is no answer to a request. */
#define MOST_NS UINT64_C(1000000000)
/* So much of it is queued where rounds were lately: what a round may find there, beside a kernel of its own length. */
#define QUEUED_NS UINT64_C(100000)
/* Rounds were lately: requests that come once in a second find a short queue. */
#define LATELY_NS UINT64_C(1000000000)

/* Only in a space is it known how many multiprocessors there are. */
static bool has_gate(const struct fgw_worker *worker)
{
    return worker->grantee.nr_multiprocessors != 0 && fgw_space_is_best_effort(&worker->grantee);
}

/* Multiprocessors of which the split leaves best effort each block. */
static uint32_t left_by(const struct fgw_worker *worker, uint32_t split)
{
    const uint32_t nr = worker->grantee.nr_multiprocessors, nr_given = FGW_SPLIT_N(split);
    return nr_given < nr ? nr - nr_given : 0;
}

static bool has_waited_enough(const struct fgw_space_gate *gate, uint64_t now_ns)
{
    return gate->since_ns != 0 && now_ns - gate->since_ns >= MOST_NS;
}

static void wait_for_bell(struct fgw_worker *worker)
{
    fgw_space_tell_kept_out(&worker->grantee, true);
    fgw_turn_set_gated(worker, true);
}

static bool is_deep(struct fgw_worker *worker, uint64_t now_ns)
{
    const uint64_t shut_ns = worker->turn->space_gate.shut_ns;
    return shut_ns != 0 && now_ns - shut_ns < LATELY_NS &&
           worker->track->nr_unfinished >= fgw_queue_most_within(worker, QUEUED_NS);
}

bool fgw_space_gate_holds(struct fgw_worker *worker, uint64_t nr_blocks)
{
    struct fgw_space_gate *gate = &worker->turn->space_gate;
    if (!has_gate(worker)) {
        return false;
    }
    const uint64_t now_ns = fgw_clock_ns();
    const uint32_t split = fgw_space_asked_split(&worker->grantee);
    gate->shut_ns = split != 0 ? now_ns : gate->shut_ns;
    if (nr_blocks <= left_by(worker, split)) {
        fgw_space_gate_end(worker);
        return false;
    }
    if (has_waited_enough(gate, now_ns) || (split == 0 && !is_deep(worker, now_ns))) {
        fgw_space_gate_end(worker);
        return false;
    }
    if (split == 0) {
        return true; /* until its own work has ended */
    }
    if (gate->since_ns == 0) {
        gate->since_ns = now_ns;
        fgw_count(&worker->slot->nr_space_gated, 1);
    }
    wait_for_bell(worker);
    return true;
}

bool fgw_space_gate_is_shut(struct fgw_worker *worker)
{
    const struct fgw_space_gate *gate = &worker->turn->space_gate;
    if (gate->since_ns == 0) {
        return false;
    }
    if (fgw_space_gate_is_open(worker) || has_waited_enough(gate, fgw_clock_ns())) {
        fgw_space_tell_kept_out(&worker->grantee, false);
        return false;
    }
    wait_for_bell(worker);
    return true;
}

void fgw_space_gate_end(struct fgw_worker *worker)
{
    struct fgw_space_gate *gate = &worker->turn->space_gate;
    if (gate->since_ns != 0) {
        fgw_count(&worker->slot->space_gated_ns, fgw_clock_ns() - gate->since_ns);
        fgw_space_tell_kept_out(&worker->grantee, false);
        gate->since_ns = 0;
    }
}

bool fgw_space_gate_is_awaited(const struct fgw_worker *worker)
{
    return worker->turn->space_gate.since_ns != 0 && worker->turn->is_gated;
}

bool fgw_space_gate_is_open(const struct fgw_worker *worker)
{
    return fgw_space_asked_split(&worker->grantee) == 0;
}
