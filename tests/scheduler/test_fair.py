"""Fair queuing: the paper's example, the bound on unfairness over random histories, sleepers, late charges, weights that change."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.fair import OWED_NS, PAUSE_NS, FairQueuing
from scheduler.policy import Policy
from tests.scheduler.choosing import Choosing
from tests.scheduler.histories import History, play

MS = 1_000_000
LONG_NS = 100 * PAUSE_NS


def value(policy: Policy, vgpu: int) -> float:
    return policy.standing(vgpu, 0).value


def turn(policy: Choosing[FairQueuing], used_ns: int, now_ns: int) -> int:
    """One slice of whoever is picked, who then queues again."""
    choice = policy.pick(now_ns)
    assert choice is not None
    policy.dispatched(choice, now_ns)
    policy.charged(choice, used_ns, now_ns + used_ns)
    policy.backlogged(choice, now_ns + used_ns)
    return choice


def backlogged_policy(weights: dict[int, int]) -> Choosing[FairQueuing]:
    policy = Choosing(FairQueuing())
    for vgpu, weight in weights.items():
        policy.joined(vgpu, weight, 0)
        policy.backlogged(vgpu, 0)
    return policy


def test_the_example_of_the_paper() -> None:
    """Figure 4: weights 1 and 2, slices of 10 ms. vGPU 1 sleeps from 70 to 105 and wakes at virtual time 35."""
    policy = backlogged_policy({1: 1, 2: 2})
    order = [turn(policy, 10 * MS, 10 * MS * i) for i in range(6)]
    assert order == [1, 2, 2, 1, 2, 2]
    assert (value(policy, 1), value(policy, 2)) == (20 * MS, 20 * MS)
    assert turn(policy, 10 * MS, 60 * MS) == 1
    policy.blocked(1, 70 * MS)
    assert [turn(policy, 10 * MS, (70 + 10 * i) * MS) for i in range(3)] == [2, 2, 2]
    policy.backlogged(1, 105 * MS)
    assert value(policy, 1) == 35 * MS
    assert value(policy, 2) == 35 * MS


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(0, 2**32), st.integers(1, 150))
@settings(max_examples=200)
def test_nobody_gets_ahead_of_an_active_one_by_more_than_the_bound(weights: list[int], seed: int, nr: int) -> None:
    play(History(FairQueuing(owed_ns=MS), weights, MS), random.Random(seed), nr)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(0, 2**32), st.integers(1, 150))
@settings(max_examples=200)
def test_debts_of_one_change_nothing_in_the_bound_for_others(weights: list[int], seed: int, nr: int) -> None:
    play(History(FairQueuing(owed_ns=MS), weights, MS), random.Random(seed), nr, debtor=0)


@given(st.integers(0, 2**32))
@settings(max_examples=50)
def test_the_bound_holds_without_pauses_too(seed: int) -> None:
    play(History(FairQueuing(pause_ns=0), [1, 2, 3], 0), random.Random(seed), 120)


def test_the_bound_is_what_first_come_breaks() -> None:
    """So that the property test is known to be able to fail."""
    from scheduler.first_come import FirstCome  # noqa: PLC0415

    with pytest.raises(AssertionError, match="ahead of"):
        play(History(FirstCome(), [1, 5, 9], MS), random.Random(1), 400)


@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=5),
    st.lists(st.integers(1, 90 * MS), min_size=5, max_size=5),
    st.integers(2 * PAUSE_NS, 10**12),
)
def test_a_sleeper_gains_nothing(weights: list[int], lengths_ns: list[int], sleep_ns: int) -> None:
    policy = backlogged_policy(dict(enumerate(weights)))
    now_ns = 0
    policy.blocked(0, now_ns)
    policy.dispatched(1, now_ns)
    while now_ns < sleep_ns:
        for length_ns in lengths_ns:
            now_ns += max(length_ns, sleep_ns // 20)
            policy.charged(1, length_ns, now_ns)
    before = value(policy, 1)
    policy.backlogged(0, now_ns)
    others = [value(policy, vgpu) for vgpu in range(1, len(weights))]
    assert value(policy, 0) == min(others)
    assert value(policy, 1) == before


def test_one_alone_that_worked_for_long_does_not_pay_for_it() -> None:
    policy = Choosing(FairQueuing())
    policy.joined(1, 1, 0)
    policy.joined(2, 1, 0)
    policy.dispatched(1, 0)
    for i in range(100):
        policy.charged(1, MS, i * MS)
    policy.backlogged(2, LONG_NS)
    policy.backlogged(1, LONG_NS)
    assert value(policy, 2) == value(policy, 1)
    assert policy.pick(LONG_NS) == 2


@pytest.mark.parametrize(("used_ns", "lead_ns"), [(MS // 10, 3 * MS // 10), (90 * MS, OWED_NS / 3)])
def test_after_a_pause_it_is_owed_what_it_was_up_to_a_limit(used_ns: int, lead_ns: float) -> None:
    policy = backlogged_policy({1: 3, 2: 1})
    assert turn(policy, 3 * MS, 0) == 1
    assert turn(policy, 12 * MS // 10, MS) == 2
    policy.blocked(1, 2 * MS)
    policy.dispatched(2, 2 * MS)
    policy.charged(2, used_ns, 2 * MS + PAUSE_NS // 2)
    policy.backlogged(1, 2 * MS + PAUSE_NS - 1)
    assert value(policy, 2) - value(policy, 1) == pytest.approx(lead_ns, abs=1)


def test_a_pause_that_lasts_is_sleep() -> None:
    policy = backlogged_policy({1: 3, 2: 1})
    assert turn(policy, 3 * MS, 0) == 1
    policy.dispatched(2, MS)
    policy.blocked(1, MS)
    policy.charged(2, 9 * MS, MS)
    policy.backlogged(1, MS + PAUSE_NS)
    assert value(policy, 1) == value(policy, 2) == 9 * MS


@pytest.mark.parametrize("state", ["holding", "backlogged", "pausing"])
def test_a_late_charge_moves_whoever_it_finds(state: str) -> None:
    policy = backlogged_policy({1: 2, 2: 1})
    policy.dispatched(1, 0)
    if state == "backlogged":
        policy.backlogged(1, 1)
    elif state == "pausing":
        policy.blocked(1, 1)
    policy.charged(1, 5 * MS, 2)
    assert value(policy, 1) == 2.5 * MS
    policy.backlogged(1, 3)
    assert policy.pick(4) == 2


def test_a_charge_that_finds_it_asleep_counts_from_virtual_time() -> None:
    """A kernel that outlived its slice runs beside the others: what it takes now is not set off against its sleep."""
    policy = backlogged_policy({1: 1, 2: 1})
    policy.blocked(1, 0)
    policy.dispatched(2, 0)
    policy.charged(2, 50 * MS, LONG_NS)
    policy.charged(1, 7 * MS, LONG_NS)
    assert value(policy, 1) == 57 * MS
    policy.backlogged(1, 2 * LONG_NS)
    assert value(policy, 1) == 57 * MS


def test_a_weight_changes_what_comes_and_not_what_was() -> None:
    policy = backlogged_policy({1: 1, 2: 1})
    for i in range(10):
        turn(policy, MS, i * MS)
    before = value(policy, 1), value(policy, 2)
    policy.weight_changed(2, 4, 10 * MS)
    assert (value(policy, 1), value(policy, 2)) == before
    turns = [turn(policy, MS, (10 + i) * MS) for i in range(50)]
    assert (turns.count(1), turns.count(2)) == (10, 40)


@pytest.mark.parametrize("used_late_ns", [0, MS])
@pytest.mark.parametrize("sleep_ns", [2 * PAUSE_NS, 20_000 * MS])
def test_a_debt_is_nothing_that_others_are_owed(sleep_ns: int, used_late_ns: int) -> None:
    """Else who sleeps while somebody has one would keep what it did not use then, and have the GPU alone for as long."""
    policy = backlogged_policy({1: 1, 2: 1, 3: 1})
    policy.indebted(3, 300_000 * MS, 0)
    policy.charged(3, used_late_ns, 0)
    policy.blocked(1, 0)
    policy.dispatched(2, 0)
    policy.charged(2, sleep_ns, sleep_ns)
    policy.backlogged(2, sleep_ns)
    policy.backlogged(1, sleep_ns)
    assert value(policy, 1) == value(policy, 2) == sleep_ns
    assert value(policy, 3) == 300_000 * MS + used_late_ns


def test_what_a_debtor_overruns_is_a_lead_once_the_debt_is_paid() -> None:
    policy = backlogged_policy({1: 1, 2: 1})
    policy.indebted(2, 3_000 * MS, 0)
    for i in range(30):
        turn(policy, 100 * MS, 100 * MS * i)
    assert value(policy, 2) == value(policy, 1)
    policy.dispatched(2, 3_000 * MS)
    policy.charged(2, 1_500 * MS, 4_500 * MS)
    policy.blocked(1, 4_500 * MS)
    policy.backlogged(1, 4_500 * MS + PAUSE_NS)
    assert value(policy, 1) == 3_000 * MS, "it is owed the overrun"


def test_small_charges_add_up_without_loss() -> None:
    policy = FairQueuing()
    policy.joined(1, 7, 0)
    policy.dispatched(1, 0)
    for _ in range(70_000):
        policy.charged(1, 1, 0)
    assert value(policy, 1) == 10_000


def test_of_equals_the_longest_waiting_is_first() -> None:
    policy = Choosing(FairQueuing())
    for vgpu in (3, 1, 2):
        policy.joined(vgpu, 1, 0)
    for vgpu in (2, 3, 1):
        policy.backlogged(vgpu, 0)
    assert [turn(policy, MS, i) for i in range(6)] == [2, 3, 1, 2, 3, 1]


def test_another_than_the_picked_one_may_be_dispatched() -> None:
    """The daemon hears afterwards whom the workers gave the GPU, and may miss some."""
    policy = backlogged_policy({1: 1, 2: 1, 3: 1})
    policy.dispatched(3, 0)
    policy.charged(3, 6 * MS, 6 * MS)
    policy.dispatched(2, 6 * MS)
    policy.charged(2, 6 * MS, 12 * MS)
    policy.backlogged(3, 12 * MS)
    policy.backlogged(2, 12 * MS)
    assert policy.pick(12 * MS) == 1
    policy.dispatched(99, 12 * MS)
    assert policy.pick(12 * MS) == 1


def test_joining_twice_forgives_nothing() -> None:
    policy = backlogged_policy({1: 1, 2: 1})
    turn(policy, 60 * MS, 0)
    policy.joined(1, 2, 60 * MS)
    assert value(policy, 1) == 60 * MS
    assert policy.standing(1, 0).per_ns == 0.5


def test_one_that_comes_starts_where_the_others_are() -> None:
    policy = backlogged_policy({1: 1, 2: 1})
    for i in range(20):
        turn(policy, MS, i * MS)
    policy.left(2, 20 * MS)
    policy.joined(2, 1, 20 * MS)
    policy.backlogged(2, 20 * MS)
    assert value(policy, 2) == value(policy, 1) == 10 * MS


@pytest.mark.parametrize("kernel_ns", [150 * MS, 1_500 * MS, 12_000 * MS])
def test_a_pause_forgives_no_one_a_kernel_longer_than_what_is_owed(kernel_ns: int) -> None:
    """Weights 1 and 3: after a kernel of the first the second one is owed three, and pauses after each of them."""
    policy = backlogged_policy({1: 1, 2: 3})
    now_ns = 0
    for turns in range(1, 4):
        assert turn(policy, kernel_ns, now_ns) == 1
        for nr in range(3):
            choice = policy.pick(now_ns)
            assert choice == 2
            policy.dispatched(choice, now_ns)
            policy.charged(choice, kernel_ns, now_ns + kernel_ns)
            now_ns += kernel_ns
            policy.blocked(choice, now_ns)
            policy.dispatched(1, now_ns)  # nobody else wants it for a moment
            policy.backlogged(1, now_ns + 1)
            now_ns += PAUSE_NS - 1
            policy.backlogged(choice, now_ns)
            assert value(policy, 2) == pytest.approx(((turns - 1) * 3 + nr + 1) * kernel_ns / 3, abs=1)
        now_ns += kernel_ns


@pytest.mark.parametrize("kernel_ns", [MS, 150 * MS, 6_000 * MS])
def test_a_pause_may_last_a_quarter_of_the_longest_turn(kernel_ns: int) -> None:
    """Or 10 ms, if that is more."""
    most_ns = max(PAUSE_NS, kernel_ns // 4)
    for pause_ns, kept in ((most_ns - 1, True), (most_ns + 1, False)):
        policy = backlogged_policy({1: 1, 2: 3})
        assert turn(policy, kernel_ns, 0) == 1
        policy.dispatched(2, kernel_ns)
        policy.charged(2, kernel_ns, 2 * kernel_ns)
        policy.blocked(2, 2 * kernel_ns)
        policy.dispatched(1, 2 * kernel_ns)
        policy.backlogged(2, 2 * kernel_ns + pause_ns)
        assert value(policy, 2) == pytest.approx(kernel_ns / 3 if kept else kernel_ns, abs=1)


@pytest.mark.parametrize("sleep_ms", [20, 1_000, 20_000])
def test_a_sleep_is_no_pause_because_somebody_weighs_next_to_nothing(sleep_ms: int) -> None:
    """A slice puts that one so far ahead that the others are owed minutes. Who sleeps meanwhile keeps nothing of one that works on."""
    policy = backlogged_policy({1: 10_000, 2: 10_000, 3: 1})
    policy.dispatched(3, 0)
    policy.charged(3, 30 * MS, 30 * MS)
    policy.backlogged(3, 30 * MS)
    policy.blocked(1, 30 * MS)
    for now_ms in range(30, 30 + sleep_ms, 10):
        assert turn(policy, 10 * MS, now_ms * MS) == 2
    policy.backlogged(1, (30 + sleep_ms) * MS)
    assert value(policy, 1) == value(policy, 2)


@pytest.mark.parametrize("weights", [{1: 10_000, 2: 10_000, 3: 1}, {1: 3, 2: 3, 3: 1}])
def test_pauses_save_no_more_of_one_that_works_on_because_a_third_one_leads(weights: dict[int, int]) -> None:
    """Vgpu 1 pauses for 5 ms after each ms of work. What the third one owes it the second does not."""
    policy = backlogged_policy(weights)
    policy.dispatched(3, 0)
    policy.charged(3, 6_000 * MS, 6_000 * MS)
    policy.backlogged(3, 6_000 * MS)
    for now_ms in range(6_000, 12_000, 6):
        assert turn(policy, MS, now_ms * MS) in (1, 2)
        policy.blocked(1, (now_ms + 1) * MS)
        policy.dispatched(2, (now_ms + 1) * MS)
        policy.charged(2, 5 * MS, (now_ms + 6) * MS)
        policy.backlogged(2, (now_ms + 6) * MS)
        policy.backlogged(1, (now_ms + 6) * MS)
    assert value(policy, 2) - value(policy, 1) == pytest.approx(OWED_NS / weights[1], abs=10 * MS / weights[1])
    assert value(policy, 3) == 6_000 * MS, "it leads still"


def test_who_wakes_while_others_pause_is_not_behind_them() -> None:
    """In such a moment virtual time is where the one is that leads: by 30 ms, which the others are owed ten thousand times."""
    policy = backlogged_policy({1: 10_000, 2: 10_000, 3: 1})
    policy.blocked(2, 0)
    policy.dispatched(3, 0)
    policy.charged(3, 30 * MS, 30 * MS)
    policy.blocked(1, 30 * MS)
    policy.backlogged(3, 30 * MS)
    policy.joined(4, 10_000, 31 * MS)
    policy.backlogged(2, 31 * MS)
    policy.backlogged(4, 31 * MS)
    policy.backlogged(1, 32 * MS)
    assert value(policy, 1) == value(policy, 2) == value(policy, 4) == 0
    assert value(policy, 3) == 30 * MS


def test_a_long_turn_of_long_ago_is_no_reason_to_keep_more() -> None:
    policy = backlogged_policy({1: 1, 2: 1})
    turn(policy, 5_000 * MS, 0)
    for i in range(20_000):
        turn(policy, MS, 5_000 * MS + i * MS)
    policy.blocked(1, 30_000 * MS)
    policy.dispatched(2, 30_000 * MS)
    policy.charged(2, 900 * MS, 30_000 * MS)
    policy.backlogged(1, 30_001 * MS)
    assert value(policy, 2) - value(policy, 1) == pytest.approx(OWED_NS, abs=MS)
