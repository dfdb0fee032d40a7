"""Kernels that do not end: what they take from a neighbour, in model time, with the real policy; and the ban."""

import json

import pytest

from backend_host.debts import BAN_AFTER, MAX_DEBT_NS, MOST_DEBTORS, Debts, DebtsRecord
from backend_host.restart.keeping import MESSAGE_BYTES
from scheduler.fair import FairQueuing

S = 1_000_000_000
LIMIT_NS = 10 * S
"""Of the watchdog."""
SLICE_NS = 6_000_000
NEIGHBOUR, GUILTY = 0, 1
DEBTOR = "user 7"


def shares(debts: Debts | None, nr_kernels: int) -> tuple[float, int]:
    """The neighbour's share of what it gets alone until so many kernels were ended, or their user is banned; and what it lost, in ns.

    Each kernel is of a new program in a new vGPU, as of fairgv-run: what the vGPU was charged went with it.
    """
    policy, now_ns = FairQueuing(), 0
    policy.joined(NEIGHBOUR, 1, 0)
    policy.backlogged(NEIGHBOUR, 0)
    had_ns = lost_ns = 0
    for _ in range(nr_kernels):
        if debts is not None and debts.is_banned(DEBTOR):
            break
        policy.joined(GUILTY, 1, now_ns)
        if debts is not None:
            policy.indebted(GUILTY, debts.left_ns(DEBTOR, now_ns), now_ns)
        policy.backlogged(GUILTY, now_ns)
        while policy.standing(GUILTY, now_ns).value >= policy.standing(NEIGHBOUR, now_ns).value:
            policy.dispatched(NEIGHBOUR, now_ns)
            now_ns += SLICE_NS
            had_ns += SLICE_NS
            policy.charged(NEIGHBOUR, SLICE_NS, now_ns)
            policy.backlogged(NEIGHBOUR, now_ns)
        policy.dispatched(GUILTY, now_ns)
        now_ns += LIMIT_NS
        lost_ns += LIMIT_NS
        policy.charged(GUILTY, LIMIT_NS, now_ns)
        if debts is not None:
            debts.add(DEBTOR, LIMIT_NS, now_ns)
        policy.left(GUILTY, now_ns)
    return had_ns / now_ns, lost_ns


def test_a_neighbour_of_endless_kernels_gets_its_share() -> None:
    """Before, as good as nothing of what it gets alone; half of that is its share."""
    before, _ = shares(None, BAN_AFTER)
    after, lost_ns = shares(Debts(), 1000)
    assert before < 0.01
    assert after > 0.7 > 50 * before
    assert lost_ns == BAN_AFTER * LIMIT_NS, "then there is a ban"


def test_debts_double_and_are_worked_off() -> None:
    debts = Debts()
    assert [debts.add(DEBTOR, S, 0) for _ in range(3)] == [S, 2 * S, 4 * S]
    assert debts.left_ns(DEBTOR, 0) == 7 * S
    assert debts.left_ns(DEBTOR, 5 * S) == 2 * S
    assert debts.left_ns(DEBTOR, 50 * S) == 0
    assert debts.add(DEBTOR, S, 50 * S) == 8 * S
    assert debts.left_ns(DEBTOR, 51 * S) == 7 * S
    assert debts.left_ns("user 8", 0) == 0


@pytest.mark.parametrize("name", [DEBTOR, "domain vm"])
def test_a_ban_is_lifted(name: str) -> None:
    debts = Debts()
    assert not debts.lift(name)
    for nr in range(BAN_AFTER):
        assert not debts.is_banned(name)
        debts.add(name, S, nr)
    [told] = debts.statistics(BAN_AFTER)
    assert (told.debtor, told.nr_timed_out, told.is_banned) == (name, BAN_AFTER, True)
    assert debts.lift(name)
    assert not debts.is_banned(name)
    assert debts.left_ns(name, 0) == 0
    assert debts.statistics(0) == ()


def test_debtors_are_no_more_than_the_store_keeps() -> None:
    """A host has others' machines for years. Who is banned stays so."""
    debts = Debts()
    for _ in range(BAN_AFTER):
        debts.add(DEBTOR, S, 0)
    for number in range(2 * MOST_DEBTORS):
        debts.add(f"machine {number:064}", MAX_DEBT_NS, MAX_DEBT_NS + number)
    assert len(json.dumps(debts.record().written())) < MESSAGE_BYTES
    told = [each.debtor for each in debts.statistics(0)]
    assert len(told) == MOST_DEBTORS
    assert debts.is_banned(DEBTOR)
    assert told[0] == f"machine {MOST_DEBTORS + 1:064}", "the oldest are forgotten"


def test_debts_stay_within_what_the_next_daemon_reads() -> None:
    """However often: one that was refused would have all debts and bans forgiven."""
    debts = Debts()
    for _ in range(40):
        debts.add(DEBTOR, LIMIT_NS, 0)
    debts.add("user 8", 1 << 63, 0)
    next_daemons = Debts()
    next_daemons.recall(DebtsRecord.read(debts.record().written()))
    assert next_daemons.is_banned(DEBTOR)
    assert next_daemons.left_ns("user 8", 0) == MAX_DEBT_NS
    assert debts.add(DEBTOR, LIMIT_NS, 0) == LIMIT_NS << BAN_AFTER, "it doubles no more"
