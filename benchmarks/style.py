"""How all plots look: colours for light and dark pages, and what every plot has.

A plot begins with its finding, in words that need no glossary and with a number of the document that it is drawn of; below it stand the device,
the date, and how to read it. An axis says which way is better. What one gets stands beside what is due to it, which is dotted or dashed.
"""

import contextlib
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.document import Document

LESS, MORE = "(← less is better)", "(more is better →)"
"""Behind what a level axis shows, and below what an upright one does, with which it is turned."""
GREY = "#7d8590"
"""Readable on both pages: of others' figures, and of how to read a plot."""
_HEADROOM = 1.08
_LETTERS_PER_INCH = 10.5
"""Of the finding, in fonts that are wider than ours."""
_DPI = 150


@dataclass(frozen=True)
class Theme:
    """Colours: of the page, of texts, of frames and lines in the background, and of the lines that matter, in turn."""

    page: str
    ink: str
    faint: str
    lines: tuple[str, ...]

    def settings(self) -> Any:
        """Of matplotlib, by name. With these the same document gives the same bytes."""
        from cycler import cycler  # noqa: PLC0415 - of matplotlib, an optional dependency

        inks = ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor")
        faints = ("axes.edgecolor", "xtick.color", "ytick.color", "grid.color")
        pages = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
        return {
            **dict.fromkeys(inks, self.ink),
            **dict.fromkeys(faints, self.faint),
            **dict.fromkeys(pages, self.page),
            "axes.prop_cycle": cycler(color=self.lines),
            **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
            **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
            "axes.grid.axis": "y",
            "axes.titlelocation": "left",
            "axes.titlesize": "medium",
            "errorbar.capsize": 2,
            "legend.fontsize": "small",
            "legend.title_fontsize": "small",
            "legend.frameon": False,
            "lines.markersize": 5,
            "grid.linewidth": 0.6,
            "font.family": "sans-serif",
            "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
            "font.size": 10,
            "figure.constrained_layout.w_pad": 0.12,  # the reader's font may be wider
            "savefig.dpi": _DPI,
            "svg.fonttype": "none",
            "svg.hashsalt": "fairgv",
        }


THEMES: Mapping[str, Theme] = {
    "light": Theme("#ffffff", "#1f2328", "#d1d9e0", ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#9a6700")),
    "dark": Theme("#0d1117", "#e6edf3", "#3d444d", ("#58a6ff", "#f0883e", "#3fb950", "#bc8cff", "#f778ba", "#d29922")),
}


@contextlib.contextmanager
def figure_of(size: tuple[float, float], theme: Theme) -> Iterator[Any]:
    """An empty figure of so many inches, in these colours as long as the block lasts. ImportError without matplotlib."""
    import matplotlib  # noqa: PLC0415 - an optional dependency
    from matplotlib import pyplot  # noqa: PLC0415

    matplotlib.use("Agg")
    with matplotlib.rc_context(theme.settings()):
        figure = pyplot.figure(figsize=size, layout="constrained")
        try:
            yield figure
        finally:
            pyplot.close(figure)


def head(figure: Any, finding: str, document: Document, *notes: str) -> None:
    """The finding above all, and below all what it is of and how to read it."""
    wide = round(figure.get_figwidth() * _LETTERS_PER_INCH)
    figure.suptitle(textwrap.fill(finding, wide), x=0.01, ha="left", fontsize=11, fontweight="bold")
    said = " ".join((f"{document['device']}, {document['date']}.", *notes))
    figure.supxlabel(textwrap.fill(said, round(1.5 * wide)), x=0.01, ha="left", fontsize=8, color=GREY)


def due(axes: Any, text: str, *, x: float | None = None, y: float | None = None) -> None:
    """A dotted line, upright at `x` or level at `y`, with a name in the legend: what would be right."""
    line = {"color": axes.xaxis.label.get_color(), "linewidth": 1, "linestyle": ":", "label": text}
    if x is not None:
        axes.axvline(x, **line)
    if y is not None:
        axes.axhline(y, **line)


def at_least(ratio: float) -> str:
    """In two digits, and not more than it is."""
    return f"{math.floor(100 * ratio) / 100:.2f}"


def spread(samples: Sequence[Sequence[float]]) -> list[list[float]] | None:
    """Whiskers, down and up from the mean, to the least and the most; None, which draws none, where nothing was repeated."""
    if all(len(each) < 2 for each in samples):
        return None
    return [[fmean(each) - min(each) for each in samples], [max(each) - fmean(each) for each in samples]]


def told_whiskers(samples: Sequence[Sequence[float]]) -> tuple[str, ...]:
    """What a head says of them, where there are any."""
    return () if spread(samples) is None else ("Whiskers: least and most of all repetitions.",)


def limits(values: Sequence[float]) -> tuple[float, float]:
    """Of an axis for bars and their whiskers."""
    return 0, _HEADROOM * max(values)


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

    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_ticks(values, [f"{value:,.0f}" if value >= 1 else f"{value:g}" for value in values])
    axis.set_minor_locator(NullLocator())
