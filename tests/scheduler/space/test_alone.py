"""What rounds take alone: by those without best effort where there are any, corrected by those that get all of the GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.space.alone import MOST_SIGNATURES, NR_COMPARED, Alone

TIMES = st.integers(1, 10**12)


def test_without_best_effort_a_round_is_alone() -> None:
    alone = Alone()
    assert alone.time_ns("a") is None
    alone.ran_alone("a", 1000)
    assert alone.time_ns("a") == 1000
    assert alone.time_ns("b") is None


def test_where_no_round_was_alone_those_with_all_of_the_gpu_are_taken_as_they_are() -> None:
    alone = Alone()
    for took_ns in (1100, 1200, 1300):
        alone.had_whole("a", took_ns)
    assert alone.time_ns("a") == 1200


def test_what_best_effort_costs_while_it_leaves_does_not_count() -> None:
    alone = Alone()
    alone.ran_alone("a", 1000)
    for _ in range(NR_COMPARED):
        alone.had_whole("a", 1100)
        assert alone.time_ns("a") == pytest.approx(1000)


def test_it_keeps_up_with_a_program_whose_rounds_become_longer() -> None:
    alone = Alone()
    alone.ran_alone("a", 1000)
    for took_ns in (1100, 2200):
        for _ in range(NR_COMPARED):
            alone.had_whole("a", took_ns)
    assert alone.time_ns("a") == pytest.approx(2000)


def test_with_all_of_the_gpu_a_round_is_never_faster_than_alone() -> None:
    alone = Alone()
    alone.ran_alone("a", 1000)
    for _ in range(NR_COMPARED):
        alone.had_whole("a", 900)
    assert alone.time_ns("a") == 900


def test_a_round_that_is_alone_again_begins_it_anew() -> None:
    alone = Alone()
    alone.ran_alone("a", 1000)
    for _ in range(NR_COMPARED):
        alone.had_whole("a", 3000)
    for _ in range(NR_COMPARED):
        alone.ran_alone("a", 2000)
    assert alone.time_ns("a") == 2000
    for _ in range(NR_COMPARED):
        alone.had_whole("a", 2200)
    assert alone.time_ns("a") == pytest.approx(2000)


def test_signatures_that_a_guest_makes_up_are_forgotten() -> None:
    alone = Alone()
    alone.ran_alone("a", 1000)
    for number in range(MOST_SIGNATURES):
        alone.had_whole(number, 1000)
    assert alone.time_ns("a") is None
    assert alone.time_ns(0) == 1000


@given(st.lists(st.tuples(st.booleans(), TIMES), min_size=1))
def test_it_is_always_a_time(rounds: list[tuple[bool, int]]) -> None:
    alone = Alone()
    for is_alone, took_ns in rounds:
        (alone.ran_alone if is_alone else alone.had_whole)("a", took_ns)
        time_ns = alone.time_ns("a")
        assert time_ns is not None
        assert 0 < time_ns <= max(each for _, each in rounds)
