"""Replays of surfaces: of an H100's, which are committed, and of those that a model made, which has what no GPU has been found to have yet."""

import random
from pathlib import Path
from statistics import quantiles

import pytest

from scheduler.space.command import TARGETS, predictions_of, read
from scheduler.space.grid import Grid, Split
from scheduler.space.predict import PREDICTORS
from scheduler.space.recorded import Pair
from scheduler.space.registry import SEARCHES
from scheduler.space.replay import Replayed, best_split, brute_force_us, draw, replay
from scheduler.space.summary import prediction_errors, summary
from scheduler.space.surface import Point, Surface
from tests.scheduler.space.driving import flat
from tests.scheduler.space.model import FAMILIES, micro_pairs, pairs

H100, SMALL = Grid.of(132, 4, 8), Grid.of(16, 4, 3)
RECORDED = Path(__file__).resolve().parents[3] / "benchmarks" / "space"
SURFACES, MICRO = RECORDED / "surfaces.json", RECORDED / "micro.json"


@pytest.fixture(scope="module")
def climbs() -> list[Replayed]:
    """Of each family eight pairs, with each target."""
    return [
        replay("climb", pair, target, {})
        for family in FAMILIES
        for pair in pairs(family, 8, H100)
        for target in TARGETS
    ]


def test_climb_reaches_what_it_shall_on_every_family(climbs: list[Replayed]) -> None:
    found = summary(climbs)
    assert found.nr_replays == len(FAMILIES) * 8 * len(TARGETS)
    assert found.throughput >= 0.95
    assert found.time <= 0.1
    assert found.rounds_over <= 0.05
    assert found.settled_over <= 0.01
    assert found.tried <= 0.1 * len(H100)


def test_climb_reaches_it_on_an_h100_s_surfaces() -> None:
    found = summary([replay("climb", pair, target, {}) for pair in read(SURFACES).pairs for target in TARGETS])
    assert found.nr_replays == 25 * len(TARGETS)
    assert found.throughput >= 0.95
    assert found.time <= 0.1
    assert found.rounds_over <= 0.05
    assert found.settled_over <= 0.01
    assert found.nr_over == 0
    assert found.least_utilisation >= 0.98


def test_scalar_refinement_reaches_the_paper_s_figure_on_an_h100_s_surfaces() -> None:
    all_pairs = read(SURFACES).pairs
    predictions = predictions_of(all_pairs, read(MICRO))
    found = summary(
        [
            replay("nn-srs", pair, target, predicted)
            for pair, predicted in zip(all_pairs, predictions, strict=True)
            for target in TARGETS
        ]
    )
    assert found.paper == 0.836
    assert found.throughput >= found.paper


def test_climb_is_no_worse_than_turns(climbs: list[Replayed]) -> None:
    assert all(each.utilisation >= 0.97 for each in climbs), "what was recorded and what was seen differ by noise"
    assert summary(climbs).nr_better > len(climbs) / 2


@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_a_replay_of_each_search(name: str) -> None:
    (pair,) = pairs("saturating", 1, SMALL)
    predictions = {each: made(micro_pairs(4, SMALL)).predict(pair.features, SMALL) for each, made in PREDICTORS.items()}
    found = replay(name, pair, 1.5, predictions)
    assert found == replay(name, pair, 1.5, predictions), "the same luck"
    assert (found.search, found.pair, found.target) == (name, pair.name, 1.5)
    assert found.split in SMALL
    assert 0 <= found.throughput <= 1
    assert found.is_over == (pair.surface[found.split].slowdown_p95 > 1.5)
    assert 0 < found.nr_tried <= len(SMALL)
    assert found.nr_rounds > 0 < found.time


def test_brute_force_finds_what_is_there_and_whole_leaves_nothing() -> None:
    points = {split: (1.2 if split == Split(8, 2) else 9.0, 0.7) for split in SMALL} | {SMALL.whole: (1.0, 0.0)}
    pair = Pair("b", "c", 100.0, (), flat(SMALL, points))
    found = replay("exhaustive", pair, 1.5, {})
    assert (found.split, found.optimum, found.throughput, found.nr_tried) == (Split(8, 2), Split(8, 2), 1.0, len(SMALL))
    assert found.utilisation == pytest.approx(1 / 1.2 + 0.7)
    whole = replay("whole", pair, 1.5, {})
    assert (whole.split, whole.throughput, whole.utilisation) == (SMALL.whole, 0.0, 1.0)


def test_an_end_over_the_target_counts_nothing() -> None:
    truth = flat(SMALL, {split: (3.0, 0.9) for split in SMALL} | {SMALL.whole: (1.0, 0.0), Split(16, 2): (1.1, 0.5)})
    wrong = flat(SMALL, {split: (1.0, 1.0 - split.n / 20) for split in SMALL})
    found = replay("nn", Pair("b", "c", 100.0, (), truth), 1.5, {"nearest": wrong})
    assert (found.is_over, found.throughput, found.optimum) == (True, 0.0, Split(16, 2))
    assert found.nr_settled_over > 0.9 * found.nr_settled, "all but those that get all of the GPU"


def test_the_optimum_is_no_worse_than_turns() -> None:
    points = {split: (1.9, 0.3) for split in SMALL} | {SMALL.whole: (1.0, 0.0)}
    surface = flat(SMALL, points)
    assert best_split(surface, 2.0) == SMALL.whole
    assert best_split(flat(SMALL, points | {Split(8, 3): (1.2, 0.2)}), 2.0) == Split(8, 3)
    found = replay("climb", Pair("b", "c", 100.0, (), surface), 2.0, {})
    assert (found.split, found.throughput) == (SMALL.whole, 1.0)


def test_brute_force_is_20_rounds_of_every_split() -> None:
    surface = flat(SMALL, {split: (2.0, 0.5) for split in SMALL})
    assert brute_force_us(Pair("b", "c", 100.0, (), surface)) == pytest.approx(20 * 200 * len(SMALL))


def test_rounds_are_as_the_percentiles_say() -> None:
    luck = random.Random(0)
    drawn = quantiles([draw(Point(1.2, 1.5, 0.0), luck) for _ in range(20_000)], n=100)
    assert drawn[49] == pytest.approx(1.2, abs=0.01)
    assert drawn[94] == pytest.approx(1.5, abs=0.01)


def test_errors_of_predictions_beside_the_paper() -> None:
    all_pairs = pairs("saturating", 3, SMALL)
    truth = [{name: pair.surface for name in PREDICTORS} for pair in all_pairs]
    nearest, linear = prediction_errors(all_pairs, truth)
    assert (nearest.best_effort, nearest.critical, linear.critical) == (0, 0, 0)
    assert (nearest.paper_best_effort, nearest.paper_critical, linear.paper_critical) == (0.357, 0.351, 0.62)
    half = [
        {
            name: Surface(
                SMALL, {split: Point(*(each / 2 for each in point)) for split, point in pair.surface.points.items()}
            )
            for name in PREDICTORS
        }
        for pair in all_pairs
    ]
    assert prediction_errors(all_pairs, half)[0].critical == pytest.approx(0.5)
