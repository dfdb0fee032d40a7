"""What the experiments' plots have in common."""

from collections.abc import Sequence
from typing import Any

from benchmarks.ratios import Estimate


def spread(estimates: Sequence[Estimate]) -> list[float] | None:
    """Half widths for error bars; None, which draws none, where there are no intervals."""
    widths = [each.half_width for each in estimates]
    return [width or 0.0 for width in widths] if any(width is not None for width in widths) else None


def log_axis(axis: Any, values: Sequence[float]) -> None:
    """A logarithmic axis marked at the values themselves, in plain figures."""
    axis.axes.set_xscale("log")
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_minor_locator(_no_marks())


def _no_marks() -> Any:
    from matplotlib.ticker import NullLocator  # noqa: PLC0415 - an optional dependency

    return NullLocator()
