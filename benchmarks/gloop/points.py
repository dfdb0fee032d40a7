"""What a scheduling point costs, by slots and by threads, beside a launch for each step; what a request to the host costs. Natively."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.document import Document, Record, records
from benchmarks.experiment import Reporter
from benchmarks.gloop.ports import GLOOP, PLAIN, SPLIT, port, report_of
from benchmarks.guests import NATIVE, Setting, open_session
from benchmarks.part import Part
from benchmarks.sheet import Sheet
from benchmarks.style import LESS, log_axis

KIND = "gloop point"
STEPS = {"cuda": 1_000_000, "soft": 2000}
REQUESTS = {"cuda": 20_000, "soft": 100}
ROUNDS = 3


@dataclass(frozen=True)
class Step:
    """How a step is made. `blocks` that make steps at once ask the host each."""

    label: str
    way: str
    words: tuple[str, ...] = ()
    blocks: int = 0

    def size(self, device: str) -> int:
        """How many of them are timed."""
        return REQUESTS[device] if self.blocks else STEPS[device]


POINT, FAR, LAUNCH, WIDE = (
    "a point, 1 thread",
    "a point, callbacks in global memory",
    "a launch each",
    "a point, 1024 threads",
)
STEPS_OF: tuple[Step, ...] = (
    Step("a loop", PLAIN),
    Step(LAUNCH, SPLIT),
    Step(FAR, GLOOP, ("--slots", "global")),
    Step(POINT, GLOOP),
    *(Step(f"a point, {threads} threads", GLOOP, ("--threads", str(threads))) for threads in (32, 256, 1024)),
    *(
        Step(f"a request and its answer, of {blocks} blocks", GLOOP, ("--requests", "--blocks", str(blocks)), blocks)
        for blocks in (1, 132, 264)
    ),
)


def _steps(device: str) -> list[Step]:
    """softgpu runs as many blocks as it has cores, so it is asked by fewer."""
    return [step for step in STEPS_OF if device == "cuda" or step.blocks <= 1]


def _nr_records(options: argparse.Namespace) -> int:
    return len(_steps(options.device))


def _measure(options: argparse.Namespace, settings: Setting, reporter: Reporter) -> Iterator[Record]:
    for step in _steps(options.device):
        reporter.doing(step.label)
        with reporter.tolerating(step.label), open_session(NATIVE, settings) as session:
            size = step.size(options.device)
            workload = port("throttle", step.way, options.device, *step.words, size=str(size))
            report = report_of(session, workload, "--rounds", str(ROUNDS))
            yield {"kind": KIND, "step": step.label, "us": 1e6 * report["kernel_s"] / size}


def _us(document: Document) -> Mapping[str, float]:
    """Of each step, in the order of the table."""
    found: dict[str, list[float]] = {}
    for record in records(document, KIND):
        found.setdefault(record["step"], []).append(record["us"])
    return {step.label: fmean(found[step.label]) for step in STEPS_OF if step.label in found}


def _sheet(document: Document) -> Sheet | None:
    us = _us(document)
    if not us:
        return None
    rows = tuple(
        (label, f"{each:.3g}", f"{each / us[POINT]:.2f}" if POINT in us else "-") for label, each in us.items()
    )
    return Sheet(
        "What a step costs", ("step", "us", "over a point"), rows, ("Of one block, unless the row says otherwise.",)
    )


def _figures(document: Document) -> dict[str, float]:
    us = _us(document)
    found = {f"points/{label}/us": each for label, each in us.items()}
    if POINT in us:
        over = {"launch over point": LAUNCH, "global over shared": FAR, "1024 threads over 1": WIDE}
        found |= {f"points/{name}": us[label] / us[POINT] for name, label in over.items() if label in us}
    return found


def _draw(axes: Any, document: Document) -> str | None:
    us = _us(document)
    if POINT not in us or LAUNCH not in us:
        return None
    places = range(len(us))
    axes.barh(places, list(us.values()))
    axes.set_yticks(places, list(us))
    axes.invert_yaxis()
    axes.grid(axis="x")
    log_axis(axes.xaxis, [0.01, 0.1, 1, 10, 100])
    axes.set_xlabel(f"us of a step {LESS}")
    return f"A scheduling point takes {us[POINT]:.2g} us, a launch instead {us[LAUNCH] / us[POINT]:.1f} times as long"


PART = Part("points", _nr_records, _measure, _sheet, _figures, _draw)
