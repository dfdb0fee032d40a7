"""What the micro-benchmark's pairs tell of a pair that nobody has measured (G-Space, section 4.4), from features of its two kernels.

*Nearest*: the surface of the pair whose features are the nearest to both kernels'. *Linear*: a straight line for slowdown, and one for
progress, over both kernels' features and the parts that n and k are of N and K.
"""

from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from scheduler.space.grid import Grid
from scheduler.space.recorded import Pair
from scheduler.space.search import LINEAR, NEAREST
from scheduler.space.surface import Point, Surface

Numbers = NDArray[np.float64]
_LEAST = 1e-3
"""Slowdowns and progress below this are no answer of a straight line."""


class Nearest:
    """Features are compared by where they lie between the least and the greatest of the micro-benchmark's."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs = pairs
        features = np.array([pair.features for pair in pairs])
        self._least = features.min(axis=0)
        reach = features.max(axis=0) - self._least
        self._reach = np.where(reach > 0, reach, 1.0)
        self._scaled: Numbers = (features - self._least) / self._reach

    def predict(self, features: Sequence[float], grid: Grid) -> Surface:
        scaled = (np.array(features) - self._least) / self._reach
        distances = ((self._scaled - scaled) ** 2).sum(axis=1)
        return self._pairs[int(distances.argmin())].surface.on(grid)


class Linear:
    """Least squares over all points of all pairs but (N, K), where nothing has to be predicted."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        rows, values = [], []
        for pair in pairs:
            for split, point in pair.surface.points.items():
                if split != pair.surface.grid.whole:
                    rows.append(_row(pair.features, pair.surface.grid, *split))
                    values.append(point)
        self._weights: Numbers = np.linalg.lstsq(np.array(rows), np.array(values), rcond=None)[0]

    def predict(self, features: Sequence[float], grid: Grid) -> Surface:
        splits = list(grid)
        found = np.array([_row(features, grid, *split) for split in splits]) @ self._weights
        points = {
            split: Point(*(max(_LEAST, float(value)) for value in row))
            for split, row in zip(splits, found, strict=True)
        }
        return Surface(grid, points | {grid.whole: Point(1.0, 1.0, 0.0)})


def _row(features: Sequence[float], grid: Grid, n: int, k: int) -> list[float]:
    return [1.0, *features, n / grid.whole.n, k / grid.whole.k]


PREDICTORS: MappingProxyType[str, Callable[[Sequence[Pair]], Nearest | Linear]] = MappingProxyType(
    {NEAREST: Nearest, LINEAR: Linear}
)


def errors(predicted: Surface, measured: Surface) -> tuple[float, float]:
    """Mean relative errors of best effort's and of the critical kernel's degradation: the difference over the greater one (section 5.4)."""
    splits = [split for split in measured.grid if split != measured.grid.whole]
    theirs = [_error(predicted[split].progress, measured[split].progress) for split in splits]
    ours = [_error(predicted[split].slowdown_p50, measured[split].slowdown_p50) for split in splits]
    return float(np.mean(theirs)), float(np.mean(ours))


def _error(one: float, other: float) -> float:
    greater = max(one, other)
    return abs(one - other) / greater if greater > 0 else 0.0
