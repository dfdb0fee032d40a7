"""What each guest of all `mmr` runs of a device gets over its due, in one picture: FairGV beside what the driver and MPS make of the same."""

from typing import Any

from benchmarks.document import Document, Record, records
from benchmarks.experiments.sharing import Shared
from benchmarks.guests import MPS, NATIVE
from benchmarks.plots import log_axis
from benchmarks.ratios import estimate
from benchmarks.systems import OURS

SYSTEMS = {OURS: "FairGV", NATIVE: "the driver's time slices", MPS: "MPS"}
MARKS = (0.5, 1, 2, 5)
APART = 0.24
"""Of a row, between two systems."""


def draw_due(document: Document, figure: Any) -> None:
    """A row for each program and weights; a dot for each guest, the larger the more it weighs."""
    found: dict[str, dict[str, list[Record]]] = {}
    for record in records(document, "together"):
        if record["system"] in SYSTEMS:
            found.setdefault(_label(record), {}).setdefault(record["system"], []).append(record)
    rows = sorted(found, key=lambda label: (label.count(":"), label))
    axes = figure.subplots()
    for number, (name, text) in enumerate(SYSTEMS.items()):
        places: dict[int, list[tuple[float, float]]] = {}
        for row, label in enumerate(rows):
            beside = [system for system in SYSTEMS if system in found[label]]
            if name in beside:
                height = row + APART * (beside.index(name) - (len(beside) - 1) / 2)
                for part, weight in _parts(found[label][name]):
                    places.setdefault(weight, []).append((part, height))
        for weight, points in sorted(places.items()):
            axes.plot(*zip(*points, strict=True), "o", color=f"C{number}", alpha=0.8, markersize=3 + weight)
        axes.plot([], [], "o", color=f"C{number}", label=text)
    axes.axvline(1, color=axes.xaxis.label.get_color(), linewidth=0.8)
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    log_axis(axes.xaxis, MARKS)
    axes.set_xlabel("part of its due that each guest gets")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(SYSTEMS), frameon=False)


def _label(record: Record) -> str:
    weights = ":".join(str(guest["weight"]) for guest in record["guests"])
    mixture = record["mixture"].replace("kernels of ", "").replace("; ", "\n")
    return f"{mixture}, {weights}"


def _parts(runs: list[Record]) -> list[tuple[float, int]]:
    """Of each guest the mean of all repetitions, and its weight."""
    each = zip(*(Shared(run).normalised for run in runs), strict=True)
    return [(estimate(parts).mean, guest["weight"]) for parts, guest in zip(each, runs[0]["guests"], strict=True)]
