"""How long an idle holder keeps the GPU, and whom it gives it up for: the rules by hand, and what is learnt of pauses."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.newcomer import View as NewcomerView
from scheduler.newcomer import is_newcomer
from scheduler.patience import (
    IDLE_CONTENDED_NS,
    IDLE_NS,
    SWITCH_NS,
    Habit,
    Pauses,
    View,
    mean_with,
    patience_ns,
    turn_ns,
)
from scheduler.policy import Standing

US = 1_000
MS = 1_000_000
LONG_PAUSE = View(
    pause_ns=MS,
    spread_ns=200 * US,
    burst_ns=5 * MS,
    slice_ns=30 * MS,
    turn_ns=30 * MS,
    had_ns=10 * MS,
    others_wait=True,
    is_first=True,
)


@pytest.mark.parametrize(
    ("changes", "expected_ns"),
    [
        ({}, 1200 * US),
        ({"others_wait": False}, IDLE_NS),
        ({"pause_ns": 0}, IDLE_CONTENDED_NS),
        ({"pause_ns": 100 * US}, SWITCH_NS),
        ({"pause_ns": 200 * US, "is_first": False}, SWITCH_NS),
        ({"pause_ns": 5 * MS}, 5200 * US),
        ({"pause_ns": 5 * MS + 1}, IDLE_CONTENDED_NS),
        ({"pause_ns": 5 * MS, "burst_ns": 50 * MS, "slice_ns": 6 * MS, "turn_ns": 6 * MS}, IDLE_CONTENDED_NS),
        ({"pause_ns": 5 * MS, "burst_ns": 50 * MS, "slice_ns": 6 * MS, "turn_ns": 50 * MS}, 5200 * US),
        ({"is_first": False}, IDLE_CONTENDED_NS),
        ({"is_first": False, "had_ns": 30 * MS // 8}, IDLE_CONTENDED_NS),
        ({"is_first": False, "had_ns": 30 * MS // 8 - 1}, 1200 * US),
    ],
)
def test_the_rule(changes: dict[str, int], expected_ns: int) -> None:
    assert patience_ns(replace(LONG_PAUSE, **changes)) == expected_ns  # type: ignore[arg-type]


def test_a_turn_lasts_as_long_as_a_kernel_that_cannot_be_taken_back() -> None:
    assert turn_ns(30 * MS, 500 * MS, is_preemptive=True) == 30 * MS
    assert turn_ns(6 * MS, 500 * MS, is_preemptive=False) == 500 * MS
    assert turn_ns(6 * MS, MS, is_preemptive=False) == 6 * MS


def test_habits_as_workers_keep_them() -> None:
    habit = Habit()
    means = []
    for sample_ns in (100, 200, 50, 0):
        habit.note(sample_ns)
        means.append((habit.mean_ns, habit.deviation_ns, habit.spread_ns))
    assert means == [(100, 100, 400), (125, 100, 400), (106, 93, 372), (79, 96, 384)]
    assert mean_with(0, 7) == 7
    assert mean_with(7, 10) == 7


@given(st.lists(st.integers(1, 10 * MS), min_size=60, max_size=60))
def test_a_habit_is_between_its_samples(samples_ns: list[int]) -> None:
    habit = Habit()
    for sample_ns in samples_ns:
        habit.note(sample_ns)
        assert min(samples_ns) - 4 <= habit.mean_ns <= max(samples_ns)
    for _ in range(80):
        habit.note(samples_ns[0])
    assert habit.mean_ns == pytest.approx(samples_ns[0], abs=4)
    assert habit.spread_ns <= 4 * 4


def test_bursts_and_pauses() -> None:
    pauses = Pauses()
    pauses.end_pause(5, 100)  # nothing is known of before the first burst
    assert pauses.pause.mean_ns == 0
    for begin_ns in (10, 12):  # two kernels, one burst
        pauses.begin_burst(begin_ns)
    pauses.postpone_burst(20)
    pauses.end_burst(50)
    assert pauses.burst_ns == 20
    pauses.end_pause(60, 100)
    pauses.end_pause(90, 100)
    assert pauses.pause.mean_ns == 10
    pauses.begin_burst(100)
    pauses.end_burst(120)
    pauses.end_pause(5000, 50)  # a long sleep is soon forgotten
    assert pauses.pause.mean_ns == (3 * 10 + 50) // 4


LATE = NewcomerView(
    slice_ns=32 * MS,
    had_ns=4 * MS,
    turn_since_ns=MS,
    own_value=100.0,
    next_since_ns=MS + SWITCH_NS + 1,
    next_standing=Standing(99.0, per_ns=1.0),
    next_stays=False,
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"had_ns": 4 * MS - 1}, False),
        ({"next_since_ns": MS + SWITCH_NS}, False),  # away no longer than a switch
        ({"next_standing": Standing(100.0)}, False),
        ({"next_stays": True}, False),  # the holder would wait for longer
        ({"next_stays": True, "own_value": 40.0 * MS}, True),
        ({"had_ns": MS, "own_value": 40.0 * MS, "next_since_ns": MS + 1}, True),  # a slice behind
        ({"had_ns": MS, "own_value": 30.0 * MS, "next_since_ns": MS + 1}, False),
        ({"had_ns": MS - 1, "own_value": 40.0 * MS}, False),
        ({"had_ns": MS, "own_value": 40.0 * MS, "next_since_ns": MS}, False),
    ],
)
def test_newcomers(changes: dict[str, int], expected: bool) -> None:
    assert is_newcomer(replace(LATE, **changes)) is expected  # type: ignore[arg-type]
