"""`climb`: where it begins, how it goes, what it finds, and when it looks again. Surfaces of whole models are in test_replay.py."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.space.climb import GAIN, LOOK_AGAIN_NS, Climb
from scheduler.space.grid import NOTHING, Grid, Split
from scheduler.space.search import LEAST_UTILISATION, Given, Outcome
from scheduler.space.surface import Surface
from tests.scheduler.space.driving import Told, drive, flat, outcome_of

GRID = Grid.of(64, 4, 4)


def line(grid: Grid, steepness: float = 1.0) -> Surface:
    """Blocks that are taken away are missed on both sides, wherever they were."""
    whole = grid.whole.n * grid.whole.k
    return flat(
        grid,
        {split: (1 + steepness * (1 - split.n * split.k / whole), 1 - split.n * split.k / whole) for split in grid},
    )


def tried(told: list[Told]) -> list[Split]:
    """Splits in the order in which they were first in use."""
    return list(dict.fromkeys(each.outcome.split for each in told))


def test_it_begins_with_all_of_the_gpu_and_halves() -> None:
    search = Climb(Given(GRID, 1.3))
    told = drive(search, line(GRID, 0.5), 1.3, 500)
    assert tried(told)[:3] == [Split(64, 4), Split(32, 4), Split(28, 4)]


def test_a_violation_goes_back_at_once_and_halves_the_step() -> None:
    told = drive(Climb(Given(GRID, 1.3)), line(GRID), 1.3, 500)
    assert tried(told)[:3] == [GRID.whole, Split(32, 4), Split(48, 4)]
    over = next(each for each in told if not each.outcome.holds)
    assert (over.outcome.split, over.after) == (Split(32, 4), GRID.whole)


def test_near_the_target_it_goes_by_single_steps() -> None:
    told = drive(Climb(Given(GRID, 1.58)), line(GRID), 1.58, 500)
    assert tried(told)[:4] == [GRID.whole, Split(32, 4), Split(28, 4), Split(24, 4)]


def test_it_begins_where_the_pair_ended_and_stays_there_if_nothing_changed() -> None:
    surface = line(GRID)
    first = Climb(Given(GRID, 1.5))
    drive(first, surface, 1.5, 500)
    second = Climb(Given(GRID, 1.5, start=first.split))
    assert second.split == first.split
    told = drive(second, surface, 1.5, 500)
    assert second.split == first.split
    assert GRID.whole not in tried(told)
    assert set(tried(told)) <= {first.split, *GRID.neighbours(first.split)}


def test_where_the_pair_ended_is_over_the_target_by_now() -> None:
    search = Climb(Given(GRID, 1.5, start=Split(8, 1)))
    told = drive(search, line(GRID), 1.5, 500)
    assert tried(told)[:3] == [Split(8, 1), GRID.whole, Split(32, 4)]
    assert line(GRID)[search.split].slowdown_p95 <= 1.5


@given(seed=st.integers(0, 2**32), target=st.sampled_from((1.1, 1.3, 2.0)))
def test_on_a_surface_that_only_falls_no_split_gains_two_percent_on_it(seed: int, target: float) -> None:
    luck, grid = random.Random(seed), Grid.of(40, 4, 5)
    points: dict[Split, tuple[float, float]] = {}
    for split in sorted(grid, reverse=True):
        more = [points[each] for each in grid.neighbours(split) if each.gives(split) and each in points]
        slowdown = max((each[0] for each in more), default=1.0) + (luck.expovariate(8) if more else 0)
        progress = max((each[1] for each in more), default=0.0) + (luck.expovariate(30) if more else 0)
        points[split] = slowdown, progress
    surface = flat(grid, points)
    search = Climb(Given(grid, target))
    drive(search, surface, target, 5000)
    able = [
        progress
        for slowdown, progress in points.values()
        if slowdown <= target and 1 / slowdown + progress >= LEAST_UTILISATION
    ]
    assert search.is_settled
    assert surface[search.split].slowdown_p95 <= target
    assert max(able) < GAIN * surface[search.split].progress + 1e-9


def test_what_is_worse_than_turns_is_not_kept() -> None:
    points = {split: (1.5, 0.2) for split in GRID} | {GRID.whole: (1.0, 0.0)}
    search = Climb(Given(GRID, 2.0))
    drive(search, flat(GRID, points), 2.0, 5000)
    assert search.split == GRID.whole
    assert search.why == "(64, 4): nothing else holds the target and gains by it"


def settled(surface: Surface, target: float) -> tuple[Climb, int]:
    """And when."""
    search = Climb(Given(surface.grid, target))
    told = drive(search, surface, target, 5000)
    return search, told[-1].outcome.now_ns


def test_it_looks_again_after_half_a_minute_and_finds_what_changed() -> None:
    search, now_ns = settled(line(GRID), 1.5)
    before = search.split
    later = line(GRID, 0.7)
    search.tell(outcome_of(later[before], before, 1.5, now_ns + LOOK_AGAIN_NS - 1))
    assert search.is_settled
    search.tell(outcome_of(later[before], before, 1.5, now_ns + LOOK_AGAIN_NS))
    assert not search.is_settled
    drive(search, later, 1.5, 5000, now_ns=now_ns + LOOK_AGAIN_NS)
    assert search.is_settled
    assert later[search.split].progress > later[before].progress * GAIN


def test_looking_again_costs_one_round_over_the_target_in_200_at_most() -> None:
    surface = line(GRID)
    search, now_ns = settled(surface, 1.5)
    search.tell(outcome_of(surface[search.split], search.split, 1.5, now_ns + LOOK_AGAIN_NS))
    told = drive(search, surface, 1.5, 5000)
    outcomes = [each.outcome for each in told]
    over = sum(each.nr_over for each in outcomes)
    assert search.is_settled
    assert 0 < over <= 0.005 * sum(each.nr_rounds for each in outcomes) + 2


def test_settled_and_over_the_target_it_goes_to_what_is_safe_and_on_from_there() -> None:
    surface = line(GRID)
    search, now_ns = settled(surface, 1.5)
    before = search.split
    search.tell(Outcome(before, 1.2, 1.0, 1.4, 0.4, 20, 2, now_ns))
    assert search.split != before
    assert surface[search.split].slowdown_p95 <= 1.5
    drive(search, surface, 1.5, 5000, now_ns=now_ns)
    assert search.is_settled
    assert search.split != before


def test_a_target_out_of_reach_is_looked_at_again() -> None:
    grid = Grid.of(16, 4, 2)
    points = {split: (2.0, 0.5) for split in grid}
    search, now_ns = settled(flat(grid, points), 1.5)
    search.tell(outcome_of(flat(grid, points)[grid.whole], grid.whole, 1.5, now_ns + LOOK_AGAIN_NS))
    assert (search.is_settled, search.split) == (True, grid.whole)
    better = line(grid)
    search.tell(outcome_of(better[grid.whole], grid.whole, 1.5, now_ns + LOOK_AGAIN_NS))
    drive(search, better, 1.5, 5000, now_ns=now_ns + LOOK_AGAIN_NS)
    assert better[search.split].progress == pytest.approx(0.5)


@pytest.mark.parametrize(("slowdown", "ends"), [(1.2, NOTHING), (1.6, GRID.whole)])
def test_where_there_is_nothing_between_it_takes_all_or_nothing(slowdown: float, ends: Split) -> None:
    search = Climb(Given(GRID.ends, 1.5))
    drive(search, flat(GRID.ends, {NOTHING: (slowdown, 1.0), GRID.whole: (1.0, 0.0)}), 1.5, 500)
    assert search.is_settled
    assert search.split == ends


def test_it_does_not_look_again_from_a_split_that_it_leaves() -> None:
    """As too many of all its rounds were over the target, the last twenty of which were not."""
    surface = line(GRID)
    search, now_ns = settled(surface, 1.5)
    before = search.split
    for at_ns in (now_ns, now_ns, now_ns + LOOK_AGAIN_NS):
        assert search.split == before
        search.tell(Outcome(before, 0.9, 0.9, 1.35, surface[before].progress, 20, 1, at_ns))
    assert not search.seen[before].holds
    assert search.best() != before


@pytest.mark.parametrize(("every", "is_left"), [(200, False), (30, True)])
def test_settled_it_leaves_what_is_over_the_target_once_in_fewer_than_a_hundred_rounds(
    every: int, is_left: bool
) -> None:
    """Twenty rounds alone never tell: no two of them are over it."""
    surface = line(GRID)
    search, now_ns = settled(surface, 1.5)
    before = search.split
    for nr in range(0, 1000, 20):
        nr_over = sum((nr + each) % every == every - 1 for each in range(20))
        if search.split == before:
            search.tell(Outcome(before, 0.9, 0.9, 1.35, surface[before].progress, 20, nr_over, now_ns))
    assert (search.split != before) is is_left
    assert search.is_settled
    assert surface[search.split].slowdown_p95 <= 1.5
