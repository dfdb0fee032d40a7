"""Whether a figure stays what it is: its slope against its noise.

The first quarter is left out, as caches and pools fill. The rest is cut into blocks, whose means are less bound to their neighbours than
samples are, and a line is laid through these means. The figure is flat unless
the line's slope differs from 0 with 95 % confidence (Student), in the direction that is bad, and comes to more over the time that was
looked at than `tolerance`: so much is no loss that anybody would notice.
Wrong when: something grows in rare steps, of which a run has only one.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.ratios import student_t

NR_BLOCKS = 12
"""Ten degrees of freedom, and blocks of a minute or more in a run of twenty."""


@dataclass(frozen=True)
class Trend:
    """`growth` over the time that was looked at, with its 95 % half width, in the figure's unit."""

    mean: float
    growth: float
    half_width: float
    is_flat: bool


def trend(values: Sequence[float], tolerance: float, *, bad: int = 1) -> Trend:
    """`bad`: 1 when growing is, -1 when falling is. ValueError with fewer samples than blocks."""
    looked_at = values[len(values) // 4 :]
    if len(looked_at) < NR_BLOCKS:
        raise ValueError(f"{len(values)} samples are too few")
    edges = [len(looked_at) * block // NR_BLOCKS for block in range(NR_BLOCKS + 1)]
    means = [statistics.fmean(looked_at[begin:end]) for begin, end in itertools.pairwise(edges)]
    places = [(block + 0.5) / NR_BLOCKS for block in range(NR_BLOCKS)]
    slope, intercept = statistics.linear_regression(places, means)
    rest = sum((mean - intercept - slope * place) ** 2 for place, mean in zip(places, means, strict=True))
    spread = sum((place - 0.5) ** 2 for place in places)
    half_width = student_t(NR_BLOCKS - 2) * math.sqrt(rest / (NR_BLOCKS - 2) / spread)
    is_flat = bad * slope <= max(half_width, tolerance)
    return Trend(statistics.fmean(looked_at), slope, half_width, is_flat)
