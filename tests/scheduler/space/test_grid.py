"""Splits, grids and what is around."""

import pytest

from scheduler.space.grid import NOTHING, Grid, Split

H100 = Grid.of(132, 4, 8)


def test_a_grid_has_every_step_and_every_block() -> None:
    splits = list(H100)
    assert len(splits) == len(set(splits)) == len(H100) == 1 + 33 * 8
    assert (splits[0], splits[1], splits[-1]) == (NOTHING, Split(4, 1), H100.whole)
    assert H100.whole == Split(132, 8)


def test_multiprocessors_that_do_not_divide_end_with_a_shorter_step() -> None:
    assert Grid.of(10, 4, 2).ns == (4, 8, 10)
    assert Grid.of(3, 4, 1).ns == (3,)


@pytest.mark.parametrize(
    ("split", "is_in"),
    [(NOTHING, True), (Split(4, 8), True), (Split(132, 9), False), (Split(5, 1), False), (Split(0, 1), False)],
)
def test_what_is_of_the_grid(split: Split, is_in: bool) -> None:
    assert (split in H100) == is_in


def test_more_for_the_critical_program() -> None:
    assert Split(8, 3).gives(Split(8, 2))
    assert not Split(8, 3).gives(Split(4, 4))
    assert not Split(4, 4).gives(Split(8, 3))


def test_neighbours_are_the_eight_around_those_first_that_give_most() -> None:
    around = H100.neighbours(Split(64, 4))
    assert set(around) == {Split(n, k) for n in (60, 64, 68) for k in (3, 4, 5)} - {Split(64, 4)}
    assert around[0] == Split(68, 5)
    assert around[-1] == Split(60, 3)


def test_at_the_borders_there_are_fewer() -> None:
    assert set(H100.neighbours(H100.whole)) == {Split(132, 7), Split(128, 7), Split(128, 8)}
    assert NOTHING in H100.neighbours(Split(4, 1))
    assert H100.neighbours(NOTHING) == [Split(4, k) for k in range(8, 0, -1)]


def test_who_is_next_to_one_has_it_for_a_neighbour() -> None:
    grid = Grid.of(12, 4, 3)
    for split in grid:
        assert all(split in grid.neighbours(each) for each in grid.neighbours(split))


def test_the_ends_of_a_grid_are_a_grid_of_two() -> None:
    assert list(H100.ends) == [NOTHING, H100.whole]
    assert H100.ends.neighbours(H100.whole) == [NOTHING]
    assert H100.ends.neighbours(NOTHING) == [H100.whole]
