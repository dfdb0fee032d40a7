"""Several of one program at once: instances of ports by callbacks, by their number and by the slice; lavaMD beside the driver's time slices.

A program's time is that alone over what it gets done beside others, in one stretch.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Any

from benchmarks.document import Document, Record, records
from benchmarks.experiment import Reporter
from benchmarks.gloop.ports import GLOOP, PLAIN, port
from benchmarks.guests import NATIVE, Setting, open_session
from benchmarks.part import Part
from benchmarks.sheet import Sheet
from benchmarks.stretch import run_together
from benchmarks.style import LESS
from benchmarks.systems import OURS

INSTANCES, PREEMPTION = "gloop instances", "gloop preemption"
EDGE_PART = 0.25
LAVAMD_SIZE = {"cuda": "50", "soft": "soft"}
"""On a GPU the paper's 125,000 blocks."""


@dataclass(frozen=True)
class Run:
    """So many of a program at once. Without a slice it is the device's."""

    program: str
    way: str
    system: str
    nr: int
    slice_ms: float | None = None

    @property
    def label(self) -> str:
        """For people."""
        told = "" if self.slice_ms is None else f", slices of {self.slice_ms:g} ms"
        return f"{self.nr} of {self.program}, {self.way}, {self.system}{told}"


def _instances(device: str) -> list[Run]:
    """softgpu has two processors at least for eight programs, and is told fewer."""
    counts, slices = ((1, 2, 4, 8), (1, 2, 5, 10, 30)) if device == "cuda" else ((1, 2), (1,))
    return [
        *(Run(name, GLOOP, OURS, nr) for name in ("throttle", "tpacf", "grep") for nr in counts),
        *(Run("throttle", GLOOP, OURS, nr, each) for each in slices for nr in (1, counts[-1])),
    ]


def _preemption(device: str) -> list[Run]:
    counts = (1, 2, 3, 4, 6) if device == "cuda" else (1, 2)
    ways = ((PLAIN, NATIVE), (PLAIN, OURS), (GLOOP, OURS))
    return [Run("lavaMD", way, system, nr) for nr in counts for way, system in ways]


def _measure(
    kind: str, runs: list[Run], options: argparse.Namespace, settings: Setting, reporter: Reporter
) -> Iterator[Record]:
    for run in runs:
        reporter.doing(run.label)
        with reporter.tolerating(run.label):
            size = LAVAMD_SIZE[options.device] if run.program == "lavaMD" else None
            workload = port(run.program, run.way, options.device, size=size)
            setting = settings if run.slice_ms is None else replace(settings, slice_ms=run.slice_ms)
            with open_session(run.system, setting, (1,) * run.nr) as session:
                outcomes = run_together(session, [workload] * run.nr, options.seconds, EDGE_PART * options.seconds)
            found = {
                "program": run.program,
                "way": run.way,
                "system": run.system,
                "nr": run.nr,
                "slice_ms": run.slice_ms,
            }
            yield {"kind": kind, **found, "throughputs": [outcome.throughput for outcome in outcomes]}


def _throughputs(document: Document, kind: str) -> Mapping[Run, list[list[float]]]:
    """Of each repetition."""
    found: dict[Run, list[list[float]]] = {}
    for record in records(document, kind):
        run = Run(record["program"], record["way"], record["system"], record["nr"], record["slice_ms"])
        found.setdefault(run, []).append(record["throughputs"])
    return found


def slowdowns(document: Document, kind: str) -> Mapping[Run, float]:
    """Times of programs over that of one alone in the same way; of programs that got something done."""
    found = _throughputs(document, kind)
    mean = {run: fmean(map(fmean, each)) for run, each in found.items()}
    alone = {run: mean.get(replace(run, nr=1), 0.0) for run in mean}
    return {run: alone[run] / mean[run] for run in mean if alone[run] and mean[run]}


def deviations(document: Document, kind: str) -> Mapping[Run, float]:
    """Standard deviations of what programs of one run get done, over the mean; the largest of all repetitions."""
    return {
        run: max(pstdev(each) / fmean(each) if fmean(each) else float("inf") for each in found)
        for run, found in _throughputs(document, kind).items()
    }


def _sheet(document: Document, kind: str, title: str) -> Sheet | None:
    slower, apart = slowdowns(document, kind), deviations(document, kind)
    rows = tuple(
        (
            run.program,
            run.way,
            run.system,
            str(run.nr),
            f"{run.slice_ms or '-'}",
            f"{each:.2f}",
            f"{100 * apart[run]:.1f}",
        )
        for run, each in slower.items()
    )
    columns = ("program", "way", "system", "at once", "slice, ms", "time over alone", "deviation, %")
    return Sheet(title, columns, rows) if rows else None


def _instance_figures(document: Document) -> dict[str, float]:
    slower, apart = slowdowns(document, INSTANCES), deviations(document, INSTANCES)
    found = {
        f"instances/{run.program}/{run.nr}/time over alone": each
        for run, each in slower.items()
        if run.slice_ms is None
    }
    together = [each for run, each in apart.items() if run.nr > 1]
    return found | ({"instances/deviation": max(together)} if together else {})


def gain(document: Document, nr: int) -> float | None:
    """How much longer so many plain programs take by the driver's time slices than as many by callbacks; a part of the latter."""
    mean = {run: fmean(map(fmean, each)) for run, each in _throughputs(document, PREEMPTION).items()}
    plain, gloop = (mean.get(Run("lavaMD", way, system, nr)) for way, system in ((PLAIN, NATIVE), (GLOOP, OURS)))
    return gloop / plain - 1 if plain and gloop else None


def _preemption_figures(document: Document) -> dict[str, float]:
    gains = {nr: gain(document, nr) for nr in range(1, 7)}
    return {f"preemption/{nr}/gain": each for nr, each in gains.items() if each is not None}


def _draw_lines(axes: Any, document: Document, kind: str) -> list[tuple[str, str]]:
    """A line for each program and way, by how many run at once; which have one."""
    slower = {run: each for run, each in slowdowns(document, kind).items() if run.slice_ms is None}
    lines = list(dict.fromkeys((run.program, run.way, run.system) for run in slower))
    for program, way, system in lines:
        points = {
            run.nr: each for run, each in slower.items() if (run.program, run.way, run.system) == (program, way, system)
        }
        axes.plot(list(points), list(points.values()), "o-", label=f"{program}, {way}, {system}")
    if lines:
        counts = sorted({run.nr for run in slower})
        axes.plot(counts, counts, ":", color=axes.xaxis.label.get_color(), linewidth=1, label="one after the other")
        axes.set_xticks(counts)
        axes.set(xlabel="programs at once", ylabel=f"time over that of one alone\n{LESS}")
        axes.legend()
    return [(program, way) for program, way, _ in lines]


def _draw_instances(axes: Any, document: Document) -> str | None:
    if not _draw_lines(axes, document, INSTANCES):
        return None
    most = max(run.nr for run in slowdowns(document, INSTANCES))
    slower = [each for run, each in slowdowns(document, INSTANCES).items() if run.nr == most]
    return f"{most} programs by callbacks take {min(slower):.1f} to {max(slower):.1f} times as long as one"


def _draw_preemption(axes: Any, document: Document) -> str | None:
    if not _draw_lines(axes, document, PREEMPTION):
        return None
    return "lavaMD by callbacks beside lavaMD by the driver's time slices"


PARTS = (
    Part(
        "instances",
        lambda options: len(_instances(options.device)),
        lambda options, settings, reporter: _measure(
            INSTANCES, _instances(options.device), options, settings, reporter
        ),
        lambda document: _sheet(document, INSTANCES, "Several of one program, by callbacks"),
        _instance_figures,
        _draw_instances,
    ),
    Part(
        "preemption",
        lambda options: len(_preemption(options.device)),
        lambda options, settings, reporter: _measure(
            PREEMPTION, _preemption(options.device), options, settings, reporter
        ),
        lambda document: _sheet(document, PREEMPTION, "lavaMD, preempted and giving way"),
        _preemption_figures,
        _draw_preemption,
    ),
)
