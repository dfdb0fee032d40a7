"""Searches of a split over recorded surfaces: what each comes to beside the best, what it takes, and what predictions are off by.

No device is asked: rounds are drawn from what was recorded, by the daemon's classes (`python -m scheduler.space replay` does the same).
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError
from benchmarks.experiment import Reporter
from benchmarks.guests import Setting
from benchmarks.paper import Finding
from benchmarks.part import Part
from benchmarks.sheet import Sheet
from benchmarks.space.record import MICRO, SURFACES
from benchmarks.style import MORE
from scheduler.space.command import TARGETS, predictions_of, read
from scheduler.space.recorded import Recording, RecordingError
from scheduler.space.registry import DEFAULT_SEARCH, SEARCHES
from scheduler.space.replay import replay
from scheduler.space.summary import prediction_errors, summary
from scheduler.space.surface import Surface

KIND, ERRORS = "space search", "space prediction"
Predictions = Sequence[Mapping[str, Surface]]


def recorded(options: argparse.Namespace) -> tuple[Recording, Predictions]:
    """The surfaces of programs, and what those of the micro-benchmark predict for each pair. NotMeasurableError."""
    try:
        programs = read(options.surfaces / SURFACES)
        return programs, predictions_of(programs.pairs, read(options.surfaces / MICRO))
    except RecordingError as error:
        raise NotMeasurableError(f"{error}; fairgv-bench space --calibrate records surfaces") from None


def _nr_records(options: argparse.Namespace) -> int:
    return len(SEARCHES) * len(TARGETS) + 2


def _measure(options: argparse.Namespace, settings: Setting, reporter: Reporter) -> Iterator[Record]:
    with reporter.tolerating("search"):
        programs, predictions = recorded(options)
        pairs = list(zip(programs.pairs, predictions, strict=True))
        of = {"recorded_on": programs.device}
        for errors in prediction_errors(programs.pairs, predictions):
            yield {"kind": ERRORS, **of, **asdict(errors)}
        for name in SEARCHES:
            for target in TARGETS:
                reporter.doing(f"{name}, rounds at most {target:g}")
                replays = [replay(name, pair, target, predicted) for pair, predicted in pairs]
                yield {"kind": KIND, **of, "target": target, **asdict(summary(replays))}


def _sheet(document: Document) -> Sheet | None:
    found = records(document, KIND)
    if not found:
        return None
    rows = tuple(
        (
            record["search"],
            f"{record['target']:g}",
            f"{record['throughput']:.3f}",
            f"{record['time']:.3f}",
            f"{record['rounds_over']:.3f}",
            f"{record['settled_over']:.4f}",
            str(record["nr_better"]),
            f"{record['least_utilisation']:.3f}",
        )
        for record in found
    )
    columns = ("search", "target", "of the optimum", "time", "over", "settled over", "better", "least use")
    notes = (
        "Progress over the best split's; time over brute force's; rounds over the target, until the search settled and afterwards; pairs whose"
        " use of the GPU is better than by turns, and the least use of all. Means over the pairs.",
    )
    return Sheet("Searches over recorded surfaces", columns, rows, notes)


def _figures(document: Document) -> dict[str, float]:
    found: dict[str, float] = {}
    for record in records(document, KIND):
        name = f"search/{record['search']}/{record['target']:g}"
        kept = ("throughput", "time", "rounds_over", "settled_over", "nr_better", "nr_over", "least_utilisation")
        found |= {f"{name}/{key}": float(record[key]) for key in kept}
    for record in records(document, ERRORS):
        for role in ("best_effort", "critical"):
            found[f"prediction/{record['predictor']}/{role}"] = record[role]
    return found


def findings(document: Document) -> list[Finding]:
    """Of each target, where the paper does not say which was its."""
    figures = _figures(document)
    found = []
    for target in (f"{target:g}" for target in TARGETS):

        def of(search: str, key: str, target: str = target) -> float | None:
            return figures.get(f"search/{search}/{target}/{key}")

        detail = f"rounds at most {target}"
        pairs = {
            "gspace_nn": of("nn", "throughput"),
            "gspace_ns": of("ns", "throughput"),
            "gspace_nn_srs": of("nn-srs", "throughput"),
            "gspace_nn_over": of("nn", "nr_over"),
            "gspace_nn_ns_time": _ratio(of("nn-ns", "time"), of("ns", "time")),
            "gspace_nn_gns_time": _ratio(of("nn-gns", "time"), of("gns", "time")),
            "gspace_better": of(DEFAULT_SEARCH, "nr_better"),
        }
        found += [Finding(name, detail, ours) for name, ours in pairs.items() if ours is not None]
    for predictor, name in (("nearest", "nn"), ("linear", "linear")):
        for role in ("best_effort", "critical"):
            error = figures.get(f"prediction/{predictor}/{role}")
            if error is not None:
                found.append(Finding(f"gspace_{name}_error_{role}", "", error))
    return found


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _draw(axes: Any, document: Document) -> str | None:
    found = records(document, KIND)
    if not found:
        return None
    names = list(dict.fromkeys(record["search"] for record in found))
    targets = sorted({record["target"] for record in found})
    for number, target in enumerate(targets):
        mine = {record["search"]: record["throughput"] for record in found if record["target"] == target}
        places = [names.index(name) + 0.27 * number for name in mine]
        axes.bar(places, list(mine.values()), 0.27, label=f"{target:g}")
    axes.set_xticks([place + 0.27 for place in range(len(names))], names, fontsize="x-small")
    axes.legend(title="rounds at most", fontsize="x-small")
    axes.set_ylabel(f"progress over the best split's {MORE}")
    mean = [record["throughput"] for record in found if record["search"] == DEFAULT_SEARCH]
    return f"{DEFAULT_SEARCH} reaches {sum(mean) / len(mean):.2f} of the best split's progress" if mean else None


PART = Part("search", _nr_records, _measure, _sheet, _figures, _draw)
