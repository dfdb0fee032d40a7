"""A model of two kernels that share a GPU in space, for surfaces where none were recorded. Test code; no figure of it is of a device.

A kernel's rate on one multiprocessor grows with its blocks there, until it saturates at a part of them, and may then fall as they thrash the
cache. Blocks of both on one multiprocessor slow each other down, and all of a GPU share its bandwidth. A critical kernel of few blocks goes in
whole waves. Families differ in what is drawn; `noise` is that of a recording of few rounds.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.space.grid import Grid, Split
from scheduler.space.recorded import Pair
from scheduler.space.surface import Point, Surface

MOST_SLOWDOWN = 50.0
"""A recorder does not wait longer."""


@dataclass(frozen=True)
class Kernel:
    """What a kernel is like. Parts are from 0 to 1."""

    saturates: float
    """Part of a multiprocessor's blocks with which it is as fast as it gets there."""
    thrash: float
    """Rate that it loses from there to all blocks."""
    demand: float
    """Part of the bandwidth that it uses alone."""
    suffers: float
    """How much blocks of the other kernel on its multiprocessor slow it down: 1 halves its rate."""
    part: float = 1.0
    """Part of the GPU's multiprocessors that it can use at most."""
    waves: int = 0
    """Waves of blocks with all of the GPU; 0: many."""

    def rate(self, blocks: float) -> float:
        """On one multiprocessor with this part of the blocks."""
        if blocks <= self.saturates:
            return blocks / self.saturates
        return 1 - self.thrash * (blocks - self.saturates) / (1 - self.saturates)


FAMILIES = {
    "linear": ((0.9, 1.0), (0, 0), (0.1, 0.4), (0, 0.1), (1, 1), (0,)),
    "saturating": ((0.2, 0.7), (0, 0), (0.1, 0.5), (0, 0.3), (0.5, 1), (0,)),
    "bandwidth": ((0.3, 0.9), (0, 0.1), (0.5, 1.2), (0, 0.2), (1, 1), (0,)),
    "neighbours": ((0.4, 1.0), (0, 0), (0.1, 0.5), (0.4, 1.2), (1, 1), (0,)),
    "thrash": ((0.3, 0.6), (0.1, 0.4), (0.2, 0.7), (0, 0.4), (1, 1), (0,)),
    "waves": ((0.5, 1.0), (0, 0), (0.1, 0.6), (0, 0.4), (1, 1), (1, 2, 3, 5)),
    "mixed": ((0.2, 1.0), (0, 0.3), (0.1, 1.0), (0, 0.8), (0.5, 1), (0, 0, 2, 4)),
}
"""What is drawn for each field of a kernel, between two bounds; waves are one of these."""


def draw_kernel(family: str, luck: random.Random) -> Kernel:
    """A kernel of a family."""
    *bounds, waves = FAMILIES[family]
    saturates, thrash, demand, suffers, part = (luck.uniform(low, high) for low, high in bounds)
    return Kernel(saturates, thrash, demand, suffers, part, luck.choice(waves))


def features(kernel: Kernel, luck: random.Random) -> list[float]:
    """Seven numbers that a profiler would measure of it, a few percent off. They do not tell all of what it is like."""
    told = (
        kernel.rate(0.5),
        kernel.rate(0.25),
        min(1.0, kernel.demand),
        1 - kernel.demand / 2,
        1 / (1 + kernel.suffers),
        kernel.part,
        1 / kernel.waves if kernel.waves else 0.0,
    )
    return [value * luck.gauss(1, 0.05) for value in told]


def together(best_effort: Kernel, critical: Kernel, grid: Grid, split: Split) -> tuple[float, float]:
    """Slowdown and progress."""
    whole = grid.whole
    alone = [_all_of(kernel, whole.n, 1.0) for kernel in (best_effort, critical)]
    part = split.k / whole.k
    ours = _rated(critical, part, 1 - part, best_effort) * min(split.n, critical.part * whole.n)
    theirs = _rated(best_effort, 1 - part, part, critical) * split.n + best_effort.rate(1.0) * (whole.n - split.n)
    theirs = min(theirs, best_effort.part * whole.n * best_effort.rate(1.0))
    speed, progress = max(1e-3, ours / alone[1]), theirs / alone[0]
    if critical.waves:
        speed = critical.waves / math.ceil(critical.waves / speed - 1e-9)
    wanted = speed * critical.demand + progress * best_effort.demand
    if wanted > 1:
        speed, progress = speed / wanted, progress / wanted
    own = min(1.0, 1 / max(1e-9, critical.demand)), min(1.0, 1 / max(1e-9, best_effort.demand))
    return own[0] / speed, min(1.0, progress / own[1])


def _all_of(kernel: Kernel, n: int, blocks: float) -> float:
    return kernel.rate(blocks) * n * kernel.part


def _rated(kernel: Kernel, blocks: float, others: float, other: Kernel) -> float:
    return kernel.rate(blocks) / (1 + kernel.suffers * (other.rate(others) if others else 0.0))


def surface(best_effort: Kernel, critical: Kernel, grid: Grid, luck: random.Random, noise: float = 0.02) -> Surface:
    """As a recorder would find it."""
    points = {}
    for split in grid:
        slowdown, progress = (1.0, 0.0) if split == grid.whole else together(best_effort, critical, grid, split)
        slowdown = min(slowdown, MOST_SLOWDOWN) * luck.gauss(1, noise / 3)
        tail = 1 + noise * luck.uniform(0.5, 2.5)
        points[split] = Point(slowdown, slowdown * tail, progress * luck.gauss(1, noise / 3))
    return Surface(grid, points)


def pairs(family: str, nr_pairs: int, grid: Grid, noise: float = 0.02) -> list[Pair]:
    """The same ones each time."""
    luck = random.Random(family)
    found = []
    for number in range(nr_pairs):
        kernels = draw_kernel(family, luck), draw_kernel(family, luck)
        told = tuple(value for kernel in kernels for value in features(kernel, luck))
        measured = surface(*kernels, grid, luck, noise)
        found.append(Pair(f"{family}{number}", "critical", 500.0, told, measured))
    return found


def micro_pairs(nr_kernels: int, grid: Grid) -> list[Pair]:
    """Each of some kernels beside each, as the micro-benchmark has them: they do not thrash and have no waves."""
    luck = random.Random("micro")
    kernels = [
        Kernel(luck.uniform(0.3, 1.0), 0.0, luck.uniform(0.05, 1.2), luck.uniform(0, 0.6)) for _ in range(nr_kernels)
    ]
    told = [features(kernel, luck) for kernel in kernels]
    return [
        Pair(f"micro{i}", f"micro{j}", 500.0, (*told[i], *told[j]), surface(kernels[i], kernels[j], grid, luck))
        for i in range(nr_kernels)
        for j in range(nr_kernels)
    ]


def document(pairs: Sequence[Pair]) -> dict[str, Any]:
    """As a recorder writes it."""
    return {
        "device": "a model",
        "multiprocessors": pairs[0].surface.grid.whole.n,
        "step": pairs[0].surface.grid.ns[0],
        "pairs": [
            {
                "best_effort": pair.best_effort,
                "critical": pair.critical,
                "most_each": pair.surface.grid.whole.k,
                "alone_us": pair.alone_us,
                "features": {
                    "best_effort": list(pair.features[: len(pair.features) // 2]),
                    "critical": list(pair.features[len(pair.features) // 2 :]),
                },
                "surface": [[*split, *point, 20_000.0] for split, point in pair.surface.points.items()],
            }
            for pair in pairs
        ],
    }
