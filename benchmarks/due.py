"""What each guest of all `mmr` runs of a device gets over its due, in one picture: FairGV beside what the driver and MPS make of the same."""

from typing import Any

from benchmarks.document import Document, Record, records
from benchmarks.experiments.sharing import Shared
from benchmarks.guests import NATIVE
from benchmarks.ratios import estimate
from benchmarks.style import at_least, due, head, log_axis
from benchmarks.systems import WORDS

MARKS = (0.5, 1, 2, 5)
APART = 0.24
"""Of a row, between two systems."""


def has_the_drivers(document: Document) -> bool:
    """Whether there is something of the driver's to stand beside."""
    return any(record["system"] == NATIVE for record in records(document, "together"))


def draw_due(document: Document, figure: Any) -> None:
    """A row for each program and weights; a dot for each guest, the larger the more it weighs."""
    found: dict[str, dict[str, list[Record]]] = {}
    for record in records(document, "together"):
        if record["system"] in WORDS:
            found.setdefault(_label(record), {}).setdefault(record["system"], []).append(record)
    rows = sorted(found, key=lambda label: (label.count(":"), label))
    axes = figure.subplots()
    for number, (name, text) in enumerate(WORDS.items()):
        places: dict[int, list[tuple[float, float]]] = {}
        for row, label in enumerate(rows):
            beside = [system for system in WORDS if system in found[label]]
            if name in beside:
                height = row + APART * (beside.index(name) - (len(beside) - 1) / 2)
                for part, weight in _parts(found[label][name]):
                    places.setdefault(weight, []).append((part, height))
        for weight, points in sorted(places.items()):
            axes.plot(*zip(*points, strict=True), "o", color=f"C{number}", alpha=0.8, markersize=3 + weight)
        axes.plot([], [], "o", color=f"C{number}", label=text)
    due(axes, "its due", x=1)
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    log_axis(axes.xaxis, MARKS)
    axes.set_xlabel("less than its due   ←   what each guest gets over its due   →   more than its due")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(WORDS) + 1)
    least = {
        name: min(part for systems in found.values() if name in systems for part, _ in _parts(systems[name]))
        for name in WORDS
        if any(name in systems for systems in found.values())
    }
    said = ", ".join(f"{at_least(value)} with {WORDS[name]}" for name, value in least.items())
    note = "A dot is a guest, the larger the more it weighs. Where programs leave the GPU to each other all may have more than their due."
    head(figure, f"The least that a guest gets of its due: {said}", document, note)


def _label(record: Record) -> str:
    weights = ":".join(str(guest["weight"]) for guest in record["guests"])
    mixture = record["mixture"].replace("kernels of ", "").replace("; ", "\n")
    return f"{mixture}, {weights}"


def _parts(runs: list[Record]) -> list[tuple[float, int]]:
    """Of each guest the mean of all repetitions, and its weight."""
    each = zip(*(Shared(run).normalised for run in runs), strict=True)
    return [(estimate(parts).mean, guest["weight"]) for parts, guest in zip(each, runs[0]["guests"], strict=True)]
