"""What was measured, or predicted, of one pair for each split of a grid."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from scheduler.space.grid import NOTHING, Grid, Split


class Point(NamedTuple):
    """One split. Slowdowns are times of rounds over the time alone with all of the GPU, progress is over best effort's own rate alone."""

    slowdown_p50: float
    slowdown_p95: float
    progress: float


@dataclass(frozen=True)
class Surface:
    """A point for each split of the grid."""

    grid: Grid
    points: Mapping[Split, Point]

    def __getitem__(self, split: Split) -> Point:
        return self.points[split]

    def within(self, target: float) -> Iterator[Split]:
        """Those whose 95th percentile holds the target."""
        return (split for split in self.grid if self.points[split].slowdown_p95 <= target)

    def best(self, target: float) -> Split:
        """The greatest progress within the target; (N, K) if there is none."""
        return max(self.within(target), key=lambda split: (self.points[split].progress, split), default=self.grid.whole)

    def on(self, grid: Grid) -> "Surface":
        """This surface on another grid: n and k as parts of N and K, and straight lines between points."""
        whole = grid.whole
        return Surface(grid, {split: self.at(split.n / whole.n, split.k / whole.k) for split in grid})

    def at(self, n: float, k: float) -> Point:
        """Parts of N and K, from 0 to 1."""
        (left, right, across), (low, high, up) = _between(self._ns, n), _between(self._ks, k)
        bottom = _mix(self._corner(left, low), self._corner(right, low), across)
        top = _mix(self._corner(left, high), self._corner(right, high), across)
        return _mix(bottom, top, up)

    def _corner(self, n: int, k: int) -> Point:
        return self.points[Split(n, k) if n and k else NOTHING]

    @cached_property
    def _ns(self) -> tuple[int, ...]:
        return (0, *self.grid.ns)

    @cached_property
    def _ks(self) -> tuple[int, ...]:
        return (0, *self.grid.ks)


def _between(values: tuple[int, ...], part: float) -> tuple[int, int, float]:
    """The two values around a part of the last one, and how far it is from the first to the second."""
    wanted = part * values[-1]
    for low, high in pairwise(values):
        if wanted <= high:
            return low, high, (wanted - low) / (high - low)
    return values[-1], values[-1], 0.0


def _mix(one: Point, other: Point, part: float) -> Point:
    return Point(*(a + (b - a) * part for a, b in zip(one, other, strict=True)))
