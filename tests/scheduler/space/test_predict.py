"""What the micro-benchmark's surfaces predict, on other grids and for other kernels; and how far that is off."""

import pytest

from scheduler.space.grid import NOTHING, Grid, Split
from scheduler.space.predict import PREDICTORS, Linear, Nearest, errors
from scheduler.space.recorded import Pair
from scheduler.space.search import LINEAR, NEAREST
from scheduler.space.surface import Point, Surface
from tests.scheduler.space.driving import flat
from tests.scheduler.space.model import micro_pairs, pairs

COARSE, FINE = Grid((6, 12), (1, 2, 4)), Grid.of(12, 1, 4)


def plane(grid: Grid, height: float = 0.0) -> Surface:
    """Straight in both parts."""
    whole = grid.whole
    return flat(
        grid, {each: (3 + height - each.n / whole.n - each.k / whole.k, 1 - each.n / whole.n / 2) for each in grid}
    )


def pair(features: tuple[float, ...], surface: Surface) -> Pair:
    return Pair("b", "c", 100.0, features, surface)


def test_another_grid_lies_between_the_points() -> None:
    fine = plane(COARSE).on(FINE)
    assert fine.grid == FINE
    for split in COARSE:
        assert fine[split] == pytest.approx(plane(COARSE)[split])
    assert fine[Split(9, 3)] == pytest.approx(plane(FINE)[Split(9, 3)])


def test_what_gives_nothing_is_the_same_on_every_grid() -> None:
    surface = flat(COARSE, {each: (5.0 if each == NOTHING else 1.0, 0.0) for each in COARSE})
    assert surface.on(Grid.of(8, 2, 8))[NOTHING] == Point(5.0, 5.0, 0.0)
    assert surface.at(0.25, 1.0).slowdown_p50 == pytest.approx(3.0)


def test_a_grid_of_another_kernel_is_met_by_parts() -> None:
    assert plane(COARSE).on(Grid.of(24, 6, 8))[Split(24, 8)] == pytest.approx(plane(COARSE)[Split(12, 4)])


def test_the_nearest_is_by_scaled_features_of_both() -> None:
    low, high, far = (pair((each, each / 1000), plane(FINE, each)) for each in (0.0, 10.0, 1000.0))
    found = Nearest([low, high, far]).predict((20.0, 0.02), FINE)
    assert found.points == high.surface.points


def test_a_feature_that_all_share_decides_nothing() -> None:
    pairs_of = [pair((1.0, each), plane(FINE, each)) for each in (0.0, 10.0)]
    assert Nearest(pairs_of).predict((99.0, 9.0), FINE).points == pairs_of[1].surface.points


def test_straight_lines_are_found_by_regression() -> None:
    micro = []
    for feature in (0.0, 1.0, 2.0):
        whole = COARSE.whole
        values = {each: (2 + feature - each.n / whole.n, 0.9 - each.k / whole.k / 2) for each in COARSE}
        micro.append(pair((feature, 1.0), flat(COARSE, values)))
    found = Linear(micro).predict((1.5, 1.0), FINE)
    assert found[Split(6, 2)] == pytest.approx(Point(3.0, 3.0, 0.65))
    assert found[FINE.whole] == Point(1.0, 1.0, 0.0)


def test_answers_of_a_line_that_cannot_be_are_kept_above_nothing() -> None:
    micro = [pair((each,), flat(COARSE, {split: (2.0 - each, 1.0 - each) for split in COARSE})) for each in (0.0, 1.0)]
    assert min(Linear(micro).predict((9.0,), FINE)[NOTHING]) > 0


def test_errors_are_over_the_greater_one() -> None:
    one = flat(FINE, {split: (2.0, 0.4) for split in FINE})
    other = flat(FINE, {split: (1.0, 0.5) for split in FINE})
    assert errors(one, other) == errors(other, one) == pytest.approx((0.2, 0.5))
    nothing = flat(FINE, {split: (2.0, 0.0) for split in FINE})
    assert errors(nothing, nothing) == (0.0, 0.0)


def test_the_nearest_is_less_off_for_the_critical_kernel_than_a_line() -> None:
    """On the model's kernels, as in the paper on a GPU's."""
    micro = micro_pairs(6, Grid((6, 12), (1, 2, 4)))
    off = {}
    for name, predictor in PREDICTORS.items():
        fitted = predictor(micro)
        of = [errors(fitted.predict(each.features, FINE), each.surface) for each in pairs("saturating", 12, FINE)]
        off[name] = sum(critical for _, critical in of) / len(of)
    assert set(off) == {NEAREST, LINEAR}
    assert 0 < off[NEAREST] < off[LINEAR] < 1
