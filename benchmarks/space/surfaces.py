"""Surfaces of sharing in space: recorded with --calibrate, and what the best split of each pair would give."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from statistics import fmean
from typing import Any

from backend_host.arguments import path_argument
from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError
from benchmarks.experiment import Reporter, positive
from benchmarks.guests import Setting
from benchmarks.paper import Finding
from benchmarks.part import Part
from benchmarks.sheet import Sheet
from benchmarks.space.record import FOLDER, SIZES, Measured, Recording
from benchmarks.style import MORE
from scheduler.space.command import TARGETS
from scheduler.space.grid import Grid, Split
from scheduler.space.replay import best_split
from scheduler.space.surface import Point, Surface

KIND = "space surface"


def check(options: argparse.Namespace) -> None:
    """NotMeasurableError where the surfaces that searches read would be lost to a device that is no GPU."""
    if options.calibrate and options.device == "soft" and options.surfaces == FOLDER:
        raise NotMeasurableError("softgpu's surfaces are of no use to searches: name another folder with --surfaces")


def _nr_records(options: argparse.Namespace) -> int:
    size = SIZES[options.device]
    return len(size.pairs) + size.nr_medoids**2


def _measure(options: argparse.Namespace, settings: Setting, reporter: Reporter) -> Iterator[Record]:
    more = ("--carveout", f"{options.carveout:g}") if options.carveout else ()
    recording = Recording(options.device, options.surfaces, more)
    for name in recording.learn():
        reporter.doing(f"features of {name}")
    for file, found in chain(_named("pairs", recording.pairs()), _named("micro", recording.micro())):
        reporter.doing(f"{found['best_effort']} beside {found['critical']}")
        yield _record(file, found)


def _named(file: str, found: Iterator[Measured]) -> Iterator[tuple[str, Measured]]:
    for each in found:
        yield file, each


def _record(file: str, found: Measured) -> Record:
    """Of the surface itself, which its own file has, the best for each target; of the micro-benchmark's not even that."""
    kept = ("best_effort", "critical", "most_each", "alone_us", "unsettled")
    record = {"kind": KIND, "file": file, **{name: found[name] for name in kept}}
    if file == "pairs":
        record["best"] = {f"{target:g}": best_of(found["surface"], target) for target in TARGETS}
    return record


def best_of(rows: Sequence[Sequence[float]], target: float) -> dict[str, float] | None:
    """The greatest progress within the target that is as good as turns, and both programs' use of the GPU, which is 1 by turns. None: turns."""
    points = {Split(int(n), int(k)): Point(p50, p95, progress) for n, k, p50, p95, progress, _ in rows}
    grid = Grid(*(tuple(sorted({split[axis] for split in points} - {0})) for axis in (0, 1)))
    split = best_split(Surface(grid, points), target)
    if split == grid.whole:
        return None
    point = points[split]
    gain = 1 / point.slowdown_p50 + point.progress
    return {"n": split.n, "k": split.k, "slowdown_p95": point.slowdown_p95, "progress": point.progress, "gain": gain}


def _pairs(document: Document) -> list[Record]:
    return [record for record in records(document, KIND) if record["file"] == "pairs"]


def _sheet(document: Document) -> Sheet | None:
    found = _pairs(document)
    if not found:
        return None
    rows = tuple(
        (
            f"{each['best_effort']} beside {each['critical']}",
            f"{each['alone_us']:.0f}",
            str(each["most_each"]),
            *(_cell(each["best"][f"{target:g}"]) for target in TARGETS),
        )
        for each in found
    )
    columns = ("pair", "round alone, us", "K", *(f"at most {target:g}" for target in TARGETS))
    notes = (
        "For each target the split with the greatest progress, that progress, and both programs' gain over turns.",
    )
    return Sheet("The best splits", columns, rows, notes)


def _cell(best: Mapping[str, float] | None) -> str:
    if best is None:
        return "turns"
    return f"({best['n']}, {best['k']}) {best['progress']:.2f}, {best['gain']:.2f}"


def gains(document: Document, target: float) -> list[float]:
    """Of all pairs; turns gain nothing."""
    return [best["gain"] if (best := each["best"][f"{target:g}"]) else 1.0 for each in _pairs(document)]


def _figures(document: Document) -> dict[str, float]:
    found: dict[str, float] = {}
    for target in TARGETS if _pairs(document) else ():
        all_gains = gains(document, target)
        found |= {
            f"surfaces/{target:g}/pairs better than turns": sum(each > 1 for each in all_gains),
            f"surfaces/{target:g}/greatest gain": max(all_gains),
            f"surfaces/{target:g}/mean gain": fmean(all_gains),
        }
    return found


def findings(document: Document) -> list[Finding]:
    """The greatest gain of all pairs and targets."""
    figures = _figures(document)
    found = [figures[name] for name in (f"surfaces/{target:g}/greatest gain" for target in TARGETS) if name in figures]
    return [Finding("gspace_greatest", "", max(found))] if found else []


def _draw(axes: Any, document: Document) -> str | None:
    found = _pairs(document)
    if not found:
        return None
    names = [f"{each['best_effort']}, {each['critical']}" for each in found]
    for number, target in enumerate(TARGETS):
        axes.barh(
            [place + 0.27 * number for place in range(len(names))], gains(document, target), 0.27, label=f"{target:g}"
        )
    axes.set_yticks([place + 0.27 for place in range(len(names))], names, fontsize="x-small")
    axes.invert_yaxis()
    axes.axvline(1, color="grey")
    axes.legend(title="rounds at most", fontsize="x-small")
    axes.set_xlabel(f"gain of the best split over turns {MORE}")
    better = sum(each > 1 for each in gains(document, TARGETS[-1]))
    return f"Of {len(names)} pairs {better} gain by sharing in space where rounds may take twice as long"


PART = Part("surfaces", _nr_records, _measure, _sheet, _figures, _draw)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where surfaces are, and whether to record them."""
    parser.add_argument(
        "--calibrate", action="store_true", help="record surfaces of pairs of programs, and nothing else"
    )
    parser.add_argument(
        "--surfaces",
        type=path_argument,
        default=FOLDER,
        metavar="FOLDER",
        help="where recorded surfaces are, or go to with --calibrate (default: FairGV's own)",
    )
    parser.add_argument(
        "--carveout",
        type=positive,
        metavar="PERCENT",
        help="with --calibrate: of a multiprocessor's memory that is shared memory, for all kernels (default: as the driver says)",
    )
