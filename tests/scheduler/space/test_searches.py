"""What every search keeps, over random surfaces: smooth ones and wild ones, with noise and without."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.space.grid import NOTHING, Grid, Split
from scheduler.space.registry import DEFAULT_SEARCH, SEARCHES, UnknownSearchError, make_search
from scheduler.space.search import LINEAR, MISSED, MOST_WAITS, NEAREST, Given, MissingPredictionError, Search
from scheduler.space.surface import Point, Surface
from tests.scheduler.space.driving import Told, drive, flat, outcome_of

every_search = pytest.mark.parametrize("name", sorted(SEARCHES))
GRIDS = st.builds(Grid.of, st.integers(1, 12), st.sampled_from((1, 2, 4)), st.integers(1, 4))
TARGETS = st.sampled_from((1.05, 1.2, 1.5, 2.0))


@st.composite
def surfaces(draw: st.DrawFn, grid: Grid) -> Surface:
    """More for the critical program makes it faster and best effort slower, or nothing of the kind."""
    luck, is_smooth = random.Random(draw(st.integers(0, 2**32))), draw(st.booleans())
    if not is_smooth:
        return flat(grid, {split: (luck.uniform(0.5, 4), luck.uniform(0, 1.2)) for split in grid})
    of_n, of_k, power = luck.uniform(0.2, 3), luck.uniform(0.2, 3), luck.uniform(0.2, 3)
    points = {}
    for split in grid:
        n, k = split.n / grid.whole.n, split.k / grid.whole.k
        points[split] = 1 + of_n * (1 - n) ** power + of_k * (1 - k) ** power, 1 - n * k**power
    return flat(grid, points)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Given, Surface, float]:
    """What a search begins with, what it finds, and how noisy that is."""
    grid = draw(GRIDS)
    start = draw(st.none() | st.sampled_from(list(grid)))
    predictions = {NEAREST: draw(surfaces(grid)), LINEAR: draw(surfaces(grid))}
    begin = Given(grid, draw(TARGETS), start, predictions)
    return begin, draw(surfaces(grid)), draw(st.sampled_from((0.0, 0.02, 0.2)))


def most_outcomes(grid: Grid) -> int:
    """Each split is tried once, and waited for."""
    return (len(grid) + 1) * (MOST_WAITS + 2)


def run(name: str, case: tuple[Given, Surface, float]) -> tuple[Search, list[Told]]:
    begin, surface, noise = case
    luck = random.Random(1)
    search = make_search(name, begin)
    told = drive(search, surface, begin.target, most_outcomes(begin.grid), lambda: 1 + luck.uniform(-noise, noise))
    return search, told


@every_search
@settings(max_examples=40)
@given(case=cases())
def test_it_ends_on_the_grid(name: str, case: tuple[Given, Surface, float]) -> None:
    search, told = run(name, case)
    assert search.is_settled
    assert all(each.outcome.split in case[0].grid and each.after in case[0].grid for each in told)


@every_search
@settings(max_examples=40)
@given(case=cases())
def test_after_a_violation_it_asks_for_no_less(name: str, case: tuple[Given, Surface, float]) -> None:
    """For no less than stood, or for what held when it stood last."""
    _, told = run(name, case)
    held = {case[0].grid.whole}
    for each in told:
        held = held | {each.outcome.split} if each.outcome.holds else held - {each.outcome.split}
        if not each.outcome.holds:
            is_no_less = each.after.gives(each.outcome.split)
            assert is_no_less or each.after in held | {case[0].grid.whole}


@every_search
@settings(max_examples=40)
@given(case=cases())
def test_two_tries_over_the_target_are_never_one_after_the_other(name: str, case: tuple[Given, Surface, float]) -> None:
    _, told = run(name, case)
    seen: set[Split] = set()
    was_over_try = False
    for each in told:
        is_try = each.outcome.split not in seen
        assert not (was_over_try and is_try and not each.outcome.holds and each.outcome.split != case[0].grid.whole)
        was_over_try = not each.outcome.holds
        seen.add(each.outcome.split)


@every_search
@settings(max_examples=40)
@given(case=cases())
def test_the_same_outcomes_give_the_same_splits(name: str, case: tuple[Given, Surface, float]) -> None:
    assert [each.after for each in run(name, case)[1]] == [each.after for each in run(name, case)[1]]


@every_search
@settings(max_examples=40)
@given(case=cases(), loads=st.lists(st.floats(0.1, 2), max_size=30))
def test_settled_it_stays_on_the_grid_and_leaves_what_is_over(
    name: str, case: tuple[Given, Surface, float], loads: list[float]
) -> None:
    begin, _, _ = case
    search, _ = run(name, case)
    for load in loads:
        was_settled, split = search.is_settled, search.split
        search.tell(outcome_of(Point(load, load, 0.5), split, 1.0, 10**9))
        assert search.split in begin.grid
        is_to_leave = was_settled and load > 1 and split != begin.grid.whole and not SEARCHES[name].is_blind
        assert not is_to_leave or search.split != split


@every_search
@settings(max_examples=40)
@given(case=cases())
def test_it_says_why_in_one_short_sentence(name: str, case: tuple[Given, Surface, float]) -> None:
    begin, surface, _ = case
    search = make_search(name, begin)
    for _ in range(200):
        assert 0 < len(search.why) <= 80
        assert "\n" not in search.why
        search.tell(outcome_of(surface[search.split], search.split, begin.target, 0))


@every_search
def test_late_outcomes_are_ignored(name: str) -> None:
    grid = Grid.of(8, 2, 2)
    surface = flat(grid, {split: (1.0, 0.5) for split in grid})
    search = make_search(name, Given(grid, 1.5, predictions={NEAREST: surface, LINEAR: surface}))
    before = search.split, search.why, search.is_settled
    (late,) = (split for split in (NOTHING, grid.whole) if split != search.split)
    search.tell(outcome_of(Point(9, 9, 0), late, 1.5, 0))
    assert (search.split, search.why, search.is_settled) == before


@pytest.mark.parametrize("name", sorted(name for name, search in SEARCHES.items() if not search.is_blind))
def test_a_target_that_is_out_of_reach_leaves_all_to_the_critical_program(name: str) -> None:
    grid = Grid.of(8, 2, 2)
    surface = flat(grid, {split: (3.0, 0.5) for split in grid})
    search = make_search(name, Given(grid, 1.2, predictions={NEAREST: surface}))
    drive(search, surface, 1.2, most_outcomes(grid))
    assert (search.is_settled, search.split, search.why) == (True, grid.whole, MISSED)


@pytest.mark.parametrize("name", sorted(name for name, search in SEARCHES.items() if search.predictor))
def test_what_predicts_needs_predictions(name: str) -> None:
    with pytest.raises(MissingPredictionError, match=f"{name} needs the surfaces of the micro-benchmark"):
        make_search(name, Given(Grid.of(4, 1, 1), 1.5))


def test_the_names() -> None:
    assert all(search.name == name for name, search in SEARCHES.items())
    assert DEFAULT_SEARCH == "climb"
    with pytest.raises(UnknownSearchError, match="no search is called 'best'; there are: climb, exhaustive, gns"):
        make_search("best", Given(Grid.of(4, 1, 1), 1.5))
