"""Which search a space has when programs come and go."""

import pytest

from scheduler.space.grid import Grid, Split
from scheduler.space.pairs import MOST_PAIRS, Pairs
from scheduler.space.registry import UnknownSearchError
from scheduler.space.search import LINEAR, NEAREST
from tests.scheduler.space.driving import drive, flat

GRID = Grid.of(16, 4, 2)
SURFACE = flat(GRID, {split: (2 - split.n * split.k / 32, 1 - split.n * split.k / 32) for split in GRID})


def settle(pairs: Pairs, pair: str) -> Split:
    search = pairs.turn_to(pair, GRID, 1.6)
    drive(search, SURFACE, 1.6, 1000)
    return search.split


def test_a_pair_keeps_its_search_and_begins_where_it_ended() -> None:
    pairs = Pairs()
    ended = settle(pairs, "one")
    assert ended != GRID.whole
    assert pairs.turn_to("one", GRID, 1.6) is pairs.turn_to("one", GRID, 1.6)
    assert pairs.turn_to("two", GRID, 1.6).split == GRID.whole
    assert pairs.turn_to("one", GRID, 1.6).split == ended


def test_another_grid_or_target_is_another_pair() -> None:
    pairs = Pairs()
    settle(pairs, "one")
    assert pairs.turn_to("one", GRID, 1.2).split == GRID.whole
    assert pairs.turn_to("one", Grid.of(16, 4, 4), 1.6).split == Split(16, 4)


def test_a_search_that_had_not_settled_leaves_nothing() -> None:
    pairs = Pairs()
    drive(pairs.turn_to("one", GRID, 1.6), SURFACE, 1.6, 3)
    pairs.turn_to("two", GRID, 1.6)
    assert pairs.turn_to("one", GRID, 1.6).split == GRID.whole


def test_pairs_that_a_guest_makes_up_are_forgotten() -> None:
    pairs = Pairs("whole")
    for number in range(MOST_PAIRS + 2):
        settle(pairs, str(number))
    assert len(pairs) == MOST_PAIRS


def test_other_searches_by_name() -> None:
    blind = Pairs("nn").turn_to("one", GRID, 1.6, {NEAREST: SURFACE, LINEAR: SURFACE})
    assert (blind.name, blind.split) == ("nn", SURFACE.best(1.6))
    with pytest.raises(UnknownSearchError):
        Pairs("best").turn_to("one", GRID, 1.6)
