"""What the experiments' plots have in common."""

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.ratios import Estimate

HEADROOM = 1.4


def spread(estimates: Sequence[Estimate]) -> list[list[float]] | None:
    """Error bars, down and up, of what cannot be below 0; None, which draws none, where there are no intervals."""
    if all(each.half_width is None for each in estimates):
        return None
    widths = [each.half_width or 0.0 for each in estimates]
    return [[min(width, each.mean) for width, each in zip(widths, estimates, strict=True)], widths]


def limits(values: Sequence[float]) -> tuple[float, float]:
    """Of an axis for bars. Intervals of two or three repetitions may be many times as long as their bars: they are cut off there."""
    return 0, HEADROOM * max(values)


def round_values(least: float, most: float) -> list[float]:
    """1, 2 and 5 times powers of ten from around `least`, above 0, to around `most`."""
    exponents = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 1)
    return [
        times * 10.0**exponent
        for exponent in exponents
        for times in (1, 2, 5)
        if least / 2 <= times * 10.0**exponent <= 2 * most
    ]


def log_axis(axis: Any, values: Sequence[float]) -> None:
    """A logarithmic axis marked at the values themselves, in plain figures."""
    from matplotlib.ticker import NullLocator  # noqa: PLC0415 - an optional dependency

    axis.axes.set_xscale("log")
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_minor_locator(NullLocator())
