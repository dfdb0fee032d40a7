"""Files of recorded surfaces, right and wrong."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.space.grid import Grid, Split
from scheduler.space.recorded import RecordingError, parse
from tests.scheduler.space.model import document, pairs

GRID = Grid.of(12, 4, 3)
RIGHT = document(pairs("mixed", 2, GRID))
PAIR = RIGHT["pairs"][0]
NAME = f"{PAIR['best_effort']}-critical"


def test_what_was_written_is_read() -> None:
    recording = parse(json.dumps(RIGHT))
    assert (recording.device, recording.multiprocessors, recording.pairs) == (
        "a model",
        12,
        tuple(pairs("mixed", 2, GRID)),
    )


def test_the_grid_is_what_the_surface_has() -> None:
    coarse = Grid((4, 12), (1, 3))
    surface = parse(json.dumps(document(pairs("mixed", 1, coarse)))).pairs[0].surface
    assert surface.grid == coarse
    assert surface.grid.whole == Split(12, 3)


def without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda whole: whole.pop(key) if key in whole else whole["pairs"][0].pop(key)


def row(number: int, values: object) -> Callable[[dict[str, Any]], object]:
    return lambda whole: whole["pairs"][0]["surface"].__setitem__(number, values)


def pair(key: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda whole: whole["pairs"][0].__setitem__(key, value)


def only(*splits: tuple[int, int]) -> Callable[[dict[str, Any]], object]:
    rows = [row for row in PAIR["surface"] if (row[0], row[1]) in splits]
    return lambda whole: whole["pairs"][0].update(surface=rows)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (without("pairs"), "the file: pairs is missing"),
        (without("device"), "the file: device is missing"),
        (without("multiprocessors"), "the file: multiprocessors is missing"),
        (without("best_effort"), "pair 0: best_effort is missing"),
        (without("alone_us"), f"{NAME}: alone_us is missing"),
        (without("features"), f"{NAME}: features is missing"),
        (without("most_each"), f"{NAME}: most_each is missing"),
        (without("surface"), f"{NAME}: surface is missing"),
        (lambda whole: whole.update(pairs=[]), "the file has no pairs"),
        (lambda whole: whole.update(pairs={}), "the file: pairs is {}"),
        (lambda whole: whole.update(pairs=[3]), "pair 0: no JSON object"),
        (lambda whole: whole["pairs"].append(whole["pairs"][0]), f"{NAME}: recorded twice"),
        (lambda whole: whole["pairs"][0]["features"]["critical"].pop(), "features: not the same number for both"),
        (pair("features", {"best_effort": [1], "critical": [1]}), "features: not the same number for every pair"),
        (pair("features", {"best_effort": ["x"], "critical": [1]}), "features: 'x' is no number"),
        (pair("alone_us", 0), "alone_us is not above 0"),
        (pair("alone_us", float("nan")), "alone_us: nan is no number"),
        (pair("most_each", 8), "surface: does not end at (N, K), which is (12, 8)"),
        (pair("most_each", True), "most_each is True"),
        (pair("surface", []), "surface: does not end at (N, K)"),
        (only((4, 1), (12, 3)), "surface: has holes: (0, 0), (4, 3), (12, 1)"),
        (only((4, 1), (8, 2), (12, 3)), "has holes: (0, 0), (4, 2), (4, 3), (8, 1), (8, 3) and 2 more"),
        (row(0, [4, 2, 1.0, 1.0, 0.5, 9.0]), "surface: (4, 2) stands there twice"),
        (row(0, [0, 2, 1.0, 1.0, 0.5, 9.0]), "surface: (0, 2) is no split"),
        (row(0, [-4, 2, 1.0, 1.0, 0.5, 9.0]), "surface: (-4, 2) is no split"),
        (row(0, [4.5, 2, 1.0, 1.0, 0.5, 9.0]), "surface: (4.5, 2) is no split"),
        (row(0, [0, 0, 1.0, 1.0, 0.5]), "is not [n, k, slowdown_p50, slowdown_p95, progress, window_us]"),
        (row(0, "x"), "'x' is not [n, k,"),
        (row(0, [0, 0, 1.2, 1.1, 0.5, 9.0]), "surface, (0, 0): slowdowns are not above 0 and in order"),
        (row(0, [0, 0, 0, 1.1, 0.5, 9.0]), "slowdowns are not above 0"),
        (row(0, [0, 0, 1.0, 1.1, -0.5, 9.0]), "progress is below 0"),
        (row(0, [0, 0, 1.0, float("inf"), 0.5, 9.0]), "inf is no number"),
        (row(0, [0, 0, None, 1.0, 0.5, 9.0]), "None is no number"),
    ],
)
def test_what_is_wrong_is_named(spoil: Callable[[dict[str, Any]], object], complaint: str) -> None:
    whole = copy.deepcopy(RIGHT)
    spoil(whole)
    with pytest.raises(RecordingError) as caught:
        parse(json.dumps(whole))
    assert complaint in str(caught.value)


def test_no_json() -> None:
    with pytest.raises(RecordingError, match="no JSON: Expecting value: line 1 column 1"):
        parse("surfaces")
    with pytest.raises(RecordingError, match="the file: no JSON object"):
        parse("[]")
