"""Slowdowns of rounds: what they are compared with, when a split is known to hold, what is kept of a guest's signatures."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.space.alone import MOST_SIGNATURES, NR_COMPARED
from scheduler.space.feedback import (
    NR_ROUNDS,
    WHOLE_EVERY,
    Feedback,
    Statistics,
    Target,
    percentile,
)
from scheduler.space.grid import Split

WHOLE, HALF, LESS = Split(132, 8), Split(64, 8), Split(32, 8)


def compared(target: Target, alone_ns: int = 1000) -> Feedback:
    """Knows what a round of "a" takes alone, and stands at a half."""
    feedback = Feedback(WHOLE, target)
    feedback.round_ended("a", WHOLE, alone_ns)
    feedback.split_changed(HALF)
    return feedback


def test_slowdown_is_over_the_time_with_all_of_the_gpu() -> None:
    feedback = compared(Target(1.5))
    for _ in range(NR_ROUNDS - 1):
        feedback.round_ended("a", HALF, 1200)
        assert feedback.verdict() is None
    feedback.round_ended("a", HALF, 1800)
    verdict = feedback.verdict()
    assert verdict is not None
    assert (verdict.slowdown, verdict.load) == pytest.approx((1.2, 0.8))
    assert (verdict.nr_rounds, verdict.nr_over) == (NR_ROUNDS, 1)


def test_two_rounds_over_the_target_are_enough_to_know() -> None:
    feedback = compared(Target(1.5))
    for took_ns in (1100, 1600, 1100):
        feedback.round_ended("a", HALF, took_ns)
    assert feedback.verdict() is None
    feedback.round_ended("a", HALF, 1700)
    verdict = feedback.verdict()
    assert verdict is not None
    assert verdict.load == pytest.approx(1.6 / 1.5)


@given(times=st.lists(st.integers(1, 3000), min_size=NR_ROUNDS, max_size=NR_ROUNDS))
def test_what_is_said_early_is_what_all_rounds_say(times: list[int]) -> None:
    feedback, verdict = compared(Target(1.5)), None
    for took_ns in times:
        feedback.round_ended("a", HALF, took_ns)
        verdict = verdict or feedback.verdict()
    assert verdict is not None
    assert (verdict.load > 1) == (percentile([float(each) for each in times], 0.95) > 1500)


def test_rounds_of_another_split_or_of_several_do_not_count() -> None:
    feedback = compared(Target(1.5))
    for _ in range(NR_ROUNDS):
        feedback.round_ended("a", LESS, 9000)
        feedback.round_ended("a", None, 9000)
    assert feedback.verdict() is None
    feedback.round_ended("a", HALF, 9000)
    feedback.split_changed(LESS)
    feedback.split_changed(HALF)
    feedback.round_ended("a", HALF, 9000)
    assert feedback.verdict() is None


def test_a_verdict_that_was_heard_makes_room_for_the_next() -> None:
    feedback = compared(Target(1.5))
    for _ in range(NR_ROUNDS):
        feedback.round_ended("a", HALF, 1000)
    assert feedback.verdict() is not None
    feedback.heard()
    assert feedback.verdict() is None


def test_each_signature_has_its_own_time() -> None:
    feedback = compared(Target(1.5))
    feedback.round_ended("b", WHOLE, 10_000)
    for _ in range(NR_ROUNDS // 2):
        feedback.round_ended("a", HALF, 1300)
        feedback.round_ended("b", HALF, 13_000)
    verdict = feedback.verdict()
    assert verdict is not None
    assert verdict.slowdown == pytest.approx(1.3)


def test_a_signature_that_is_not_known_asks_for_all_of_the_gpu() -> None:
    feedback = compared(Target(1.5))
    assert not feedback.wants_whole
    feedback.round_ended("new", HALF, 10**9)
    assert feedback.wants_whole
    feedback.round_ended("new", WHOLE, 500)
    assert not feedback.wants_whole


def test_one_round_in_so_many_gets_all_of_the_gpu() -> None:
    feedback = compared(Target(1.5))
    for _ in range(WHOLE_EVERY - 1):
        assert not feedback.wants_whole
        feedback.round_ended("a", HALF, 1000)
    assert feedback.wants_whole
    feedback.round_ended("a", WHOLE, 1000)
    assert not feedback.wants_whole


def test_the_time_alone_follows_the_program() -> None:
    feedback = compared(Target(1.5))
    for _ in range(NR_COMPARED):
        feedback.round_ended("a", WHOLE, 2000)
    for _ in range(NR_ROUNDS):
        feedback.round_ended("a", HALF, 2400)
    verdict = feedback.verdict()
    assert verdict is not None
    assert verdict.slowdown == pytest.approx(1.2)


def test_a_target_that_is_a_time() -> None:
    feedback = compared(Target(ns=3000))
    for _ in range(NR_ROUNDS):
        feedback.round_ended("a", HALF, 1500)
    verdict = feedback.verdict()
    assert verdict is not None
    assert (verdict.load, verdict.slowdown) == pytest.approx((0.5, 1.5))


def test_signatures_that_a_guest_makes_up_are_forgotten() -> None:
    feedback = compared(Target(1.5))
    for number in range(MOST_SIGNATURES):
        feedback.round_ended(number, WHOLE, 1000)
    feedback.round_ended("a", HALF, 1000)
    assert feedback.wants_whole
    assert feedback.statistics().nr_rounds == 0


def test_times_that_are_none_say_nothing() -> None:
    feedback = compared(Target(1.5))
    feedback.round_ended("a", HALF, 0)
    feedback.round_ended("a", HALF, -5)
    assert feedback.statistics() == Statistics(0.0, 0.0, 0.0, 0, 0, 1)


def test_statistics() -> None:
    feedback = compared(Target(1.5))
    for percent in range(100, 200):
        feedback.round_ended("a", HALF, percent * 10)
    told = feedback.statistics()
    assert (told.slowdown_p50, told.slowdown_p95, told.slowdown_p99) == pytest.approx((1.49, 1.94, 1.98))
    assert (told.nr_rounds, told.nr_missed, told.nr_whole) == (100, 49, 1)


@given(values=st.lists(st.floats(0, 10), min_size=1, max_size=50), part=st.floats(0.01, 1))
def test_a_percentile_is_the_least_that_so_many_do_not_exceed(values: list[float], part: float) -> None:
    found = percentile(values, part)
    need = math.ceil(part * len(values))
    assert found in values
    assert sum(value <= found for value in values) >= need
    assert sum(value < found for value in values) < need
