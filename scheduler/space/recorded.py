"""Recorded surfaces, from JSON.

    {"device": "H100", "multiprocessors": 132, "step": 4,
     "pairs": [{"best_effort": "cfd", "critical": "lbm", "most_each": 8, "alone_us": 123.4,
                "features": {"best_effort": [7 numbers], "critical": [7 numbers]},
                "surface": [[n, k, slowdown_p50, slowdown_p95, progress, window_us], ...]}, ...]}

A surface has (0, 0) and every k that it has at all for every n that it has, up to all multiprocessors and all blocks. Features may be any
numbers, as many for each program of a file. A recording is read as a whole or not at all.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.space.grid import NOTHING, Grid, Split
from scheduler.space.surface import Point, Surface

_ROW = 6
"""Numbers of one split."""
_SHOWN = 5
"""Splits that a message names."""


class RecordingError(ValueError):
    """No recording of surfaces; the message says where and why."""


@dataclass(frozen=True)
class Pair:
    """What was recorded of one pair."""

    best_effort: str
    critical: str
    alone_us: float
    """Of a round with all of the GPU."""
    features: tuple[float, ...]
    """Of best effort, then of the critical program."""
    surface: Surface

    @property
    def name(self) -> str:
        return f"{self.best_effort}-{self.critical}"


@dataclass(frozen=True)
class Recording:
    """One file."""

    device: str
    multiprocessors: int
    pairs: tuple[Pair, ...]


def parse(text: str) -> Recording:
    """RecordingError when it is not as above."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise RecordingError(f"no JSON: {error}") from None
    pairs_of = _get(document, "pairs", list, "the file")
    device = _get(document, "device", str, "the file")
    multiprocessors = _get(document, "multiprocessors", int, "the file")
    pairs = tuple(_pair(each, multiprocessors, f"pair {number}") for number, each in enumerate(pairs_of))
    if not pairs:
        raise RecordingError("the file has no pairs")
    if len({len(pair.features) for pair in pairs}) > 1:
        raise RecordingError("features: not the same number for every pair")
    twice = [name for name, count in Counter(pair.name for pair in pairs).items() if count > 1]
    if twice:
        raise RecordingError(f"{twice[0]}: recorded twice")
    return Recording(device, multiprocessors, pairs)


def _pair(document: object, multiprocessors: int, where: str) -> Pair:
    best_effort = _get(document, "best_effort", str, where)
    critical = _get(document, "critical", str, where)
    where = f"{best_effort}-{critical}"
    alone_us = _number(_get(document, "alone_us", (int, float), where), f"{where}, alone_us")
    if alone_us <= 0:
        raise RecordingError(f"{where}: alone_us is not above 0")
    features = _get(document, "features", dict, where)
    both = [_get(features, role, list, f"{where}, features") for role in ("best_effort", "critical")]
    if len(both[0]) != len(both[1]):
        raise RecordingError(f"{where}, features: not the same number for both")
    whole = Split(multiprocessors, _get(document, "most_each", int, where))
    rows = _get(document, "surface", list, where)
    return Pair(
        best_effort,
        critical,
        alone_us,
        tuple(_number(value, f"{where}, features") for one in both for value in one),
        _surface(rows, whole, f"{where}, surface"),
    )


def _surface(rows: Sequence[object], whole: Split, where: str) -> Surface:
    points: dict[Split, Point] = {}
    for row in rows:
        split, point = _point(row, where)
        if split in points:
            raise RecordingError(f"{where}: {split} stands there twice")
        points[split] = point
    grid = Grid(*(tuple(sorted({split[axis] for split in points} - {0})) for axis in (0, 1)))
    if not grid.ns or not grid.ks or grid.whole != whole:
        raise RecordingError(f"{where}: does not end at (N, K), which is {whole}")
    missing = [split for split in grid if split not in points]
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise RecordingError(f"{where}: has holes: {', '.join(map(str, missing[:_SHOWN]))}{more}")
    return Surface(grid, points)


def _point(row: object, where: str) -> tuple[Split, Point]:
    if not isinstance(row, list) or len(row) != _ROW:
        raise RecordingError(f"{where}: {row!r} is not [n, k, slowdown_p50, slowdown_p95, progress, window_us]")
    n, k, p50, p95, progress, _ = (_number(value, f"{where}, {row!r}") for value in row)
    split = Split(int(n), int(k))
    if split != (n, k) or min(split) < 0 or (0 in split and split != NOTHING):
        raise RecordingError(f"{where}: ({n:g}, {k:g}) is no split")
    if not 0 < p50 <= p95 or progress < 0:
        raise RecordingError(f"{where}, {split}: slowdowns are not above 0 and in order, or progress is below 0")
    return split, Point(p50, p95, progress)


def _get(document: object, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    if not isinstance(document, Mapping):
        raise RecordingError(f"{where}: no JSON object")
    if key not in document:
        raise RecordingError(f"{where}: {key} is missing")
    value = document[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise RecordingError(f"{where}: {key} is {value!r}"[:200])
    return value


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RecordingError(f"{where}: {value!r} is no number")
    return float(value)
