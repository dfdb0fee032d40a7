"""Whether what is charged is what was used (Table 2 of the paper), and what a hand-over costs.

Programs: the mean length of a kernel by events, natively, beside the GPU time that a guest is charged for each of its kernels. Mixtures: two
guests of equal weight run kernels that write down when they began and ended, by the device's own clock; what each was charged stands beside
the time that its kernels occupied the device, see timeline.py. The gap at a hand-over stands beside the device's own switch between two queues
that the driver shares it between, natively, in the same run.

Wrong, for programs, when a stream is empty at each launch: the way of the launch then lies between the two events, a few us on a GPU.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.build import NAMES
from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiment import Experiment, Reporter, Subjects, names_of, natural_number, positives, setting
from benchmarks.experiments.overhead import kernels
from benchmarks.experiments.sharing import alone
from benchmarks.guests import NATIVE, Setting, open_session
from benchmarks.paper import Finding, is_of_the_paper, paper
from benchmarks.ratios import estimate
from benchmarks.sheet import Sheet
from benchmarks.stretch import Outcome, run_together
from benchmarks.style import LESS, head, log_axis, round_values
from benchmarks.systems import OURS
from benchmarks.timeline import Spans, Timeline, clock_step_ns, device_seconds, gaps_us, switches_us
from benchmarks.workloads import Workload, sized, spin

PERCENTS = (50, 90, 99)
PROGRAMS, MIXTURES = "programs", "by the device's clock"
"""What errors are of, in figures and findings."""
SWITCH_KERNEL_US = 20.0
"""Of the queues between which the device switches by itself: half of one is the error of each switch."""


_Line = tuple[Sequence[float], str, dict[str, str]]
"""Gaps, what they are of, and how the line looks."""


class Accounting(Experiment):
    """`fairgv-bench accounting`."""

    name = "accounting"
    summary = "charged beside used GPU time, and hand-overs by the device's clock (Table 2)"
    repetitions = 1
    seconds = 4.0
    subjects: ClassVar[Subjects] = {"program": ("program",), "mixture": ("kernel_us", "queue"), "switch": ("queue",)}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Programs, and kernels of the mixtures."""
        parser.add_argument(
            "--programs",
            type=names_of(NAMES),
            default=list(paper()["table2"]),
            metavar="NAME,...",
            help="(default: those of Table 2)",
        )
        parser.add_argument(
            "--kernel-us",
            type=positives,
            default=[20.0, 50.0, 200.0, 1000.0, 10_000.0],
            metavar="US,...",
            help="of the mixtures (default 20,50,200,1000,10000)",
        )
        parser.add_argument("--queue", type=natural_number, default=256, metavar="N", help="launches in a row (256)")

    def nr_records(self, options: argparse.Namespace) -> int:
        """Programs, then mixtures and the device's own switch beside them."""
        return int(options.repetitions * (len(options.programs) + len(options.kernel_us) + bool(options.kernel_us)))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Each kind in turn."""
        settings = setting(options)
        for repetition in range(options.repetitions):
            for name in options.programs:
                reporter.doing(name)
                with reporter.tolerating(name):
                    yield {**program(name, settings, options.seconds), "repetition": repetition}
            if options.kernel_us:
                reporter.doing("the device's own switch")
                with reporter.tolerating("the device's own switch"):
                    yield switch(options.queue, settings, options.seconds)
            for kernel_us in options.kernel_us:
                reporter.doing(f"kernels of {kernel_us:g} us")
                with reporter.tolerating(f"kernels of {kernel_us:g} us"):
                    yield mixture(kernel_us, options.queue, settings, options.seconds)

    def sheets(self, document: Document) -> list[Sheet]:
        """Programs and mixtures."""
        return [sheet for sheet in (_programs(document), _mixtures(document)) if sheet is not None]

    def findings(self, document: Document) -> list[Finding]:
        """The greatest errors."""
        theirs = [record for record in document["records"] if is_of_the_paper(record.get("program", ""))]
        figures = self.figures({**document, "records": theirs})
        return [
            Finding("accounting", what, figures[f"{what}/error %"])
            for what in (PROGRAMS, MIXTURES)
            if f"{what}/error %" in figures
        ]

    def figures(self, document: Document) -> dict[str, float]:
        """The greatest errors, and how much longer than the device's own switch hand-overs take, in the median and at the worst length."""
        found = {}
        if programs := _errors(document):
            found[f"{PROGRAMS}/error %"] = max(abs(100 * estimate(each).mean) for each in programs.values())
        if errors := [abs(100 * error) for record in records(document, "mixture") for error in record["errors"]]:
            found[f"{MIXTURES}/error %"] = max(errors)
        gaps = [np.median(record["gaps_us"]) for record in records(document, "mixture") if record["gaps_us"]]
        switches = [np.median(record["switches_us"]) for record in records(document, "switch") if record["switches_us"]]
        if gaps and switches:
            found["hand-over over the device's switch/us"] = float(max(gaps) - np.mean(switches))
        return found

    def plot(self, document: Document, figure: Any) -> None:
        """How gaps are distributed, one line for each kernel length, and how the device's own switches are."""
        seen = [record for record in records(document, "mixture") if record["gaps_us"]]
        if not seen:
            raise NotMeasurableError("no hand-over was seen")
        axes = figure.subplots()
        switches = [record for record in records(document, "switch") if record["switches_us"]]
        ours: list[_Line] = [(record["gaps_us"], f"{record['kernel_us']:g} us", {}) for record in seen]
        dashed = {"linestyle": "--", "color": axes.xaxis.label.get_color()}
        natively: list[_Line] = [
            (record["switches_us"], f"{record['kernel_us']:g} us, the device's own", dashed) for record in switches
        ]
        for gaps, label, how in (*ours, *natively):
            axes.step(np.sort(gaps), 100 * np.arange(1, len(gaps) + 1) / len(gaps), where="post", label=label, **how)
        all_us = [us for gaps, _, _ in (*ours, *natively) for us in gaps if us > 0]
        log_axis(axes.xaxis, round_values(min(all_us), max(all_us)))
        axes.set(xlabel=f"us from one guest's last kernel to the next one's first {LESS}", ylim=(0, 102))
        axes.set_ylabel("hand-overs that took no longer, %")
        axes.legend(title="kernels of")
        slowest = max(float(np.median(gaps)) for gaps, _, _ in ours)
        own = " and ".join(f"{np.median(gaps):.0f}" for gaps, _, _ in natively)
        beside = f"; a switch of the device's own takes {own}" if natively else ""
        head(figure, f"The GPU goes on to the next guest in {slowest:.0f} us or less, in the median{beside}", document)


def program(name: str, settings: Setting, stretch_s: float) -> Record:
    """Kernels of one program, natively and as charged."""
    workload = sized(name, settings.device)
    with open_session(NATIVE, settings) as native:
        timed = kernels(native, workload, stretch_s / 2)
    charged = alone(workload, OURS, settings, stretch_s)
    if not charged.nr_launches or charged.charged_s is None:
        raise ProgramFailedError(f"no kernel within {stretch_s:g} s")
    return {"kind": "program", "program": name, **timed, "charged_us": 1e6 * charged.charged_s / charged.nr_launches}


def mixture(kernel_us: float, queue: int, settings: Setting, stretch_s: float) -> Record:
    """Two guests of equal weight, and their logs."""
    outcomes, logs = _logged(OURS, spin(kernel_us, queue), settings, stretch_s)
    charged_s = tuple(outcome.charged_s or 0.0 for outcome in outcomes)
    timeline = Timeline(
        kernel_us, device_seconds(logs, are_queued=queue > 1), charged_s, gaps_us(logs), clock_step_ns(logs)
    )
    percentiles = {str(percent): timeline.gap_us(percent) if timeline.gaps_us else None for percent in PERCENTS}
    return {
        "kind": "mixture",
        "queue": queue,
        **asdict(timeline),
        "errors": timeline.errors,
        "gap_percentiles_us": percentiles,
    }


def switch(queue: int, settings: Setting, stretch_s: float) -> Record:
    """Two queues natively, and how long the device takes from one to the other."""
    _, logs = _logged(NATIVE, spin(SWITCH_KERNEL_US, queue), settings, stretch_s)
    switches = switches_us(logs)
    percentiles = {str(percent): float(np.percentile(switches, percent)) if switches else None for percent in PERCENTS}
    return {
        "kind": "switch",
        "queue": queue,
        "kernel_us": SWITCH_KERNEL_US,
        "switches_us": switches,
        "switch_percentiles_us": percentiles,
    }


def _logged(
    system: str, workload: Workload, settings: Setting, stretch_s: float
) -> tuple[tuple[Outcome, ...], list[Spans]]:
    """Two of one program at once, and when their kernels began and ended."""
    with (
        tempfile.TemporaryDirectory(prefix="fairgv-timeline-") as folder,
        open_session(system, settings, (1, 1)) as session,
    ):
        paths = [Path(folder) / f"{index}.spans" for index in range(2)]
        logged = [replace(workload, arguments=(*workload.arguments, "--log", str(path))) for path in paths]
        outcomes = run_together(session, logged, stretch_s)
        logs = [np.fromfile(path, dtype=np.uint64).reshape(-1, 2) for path in paths]
    if any(len(log) == 0 for log in logs):
        raise ProgramFailedError(f"none of the {workload.label} ended within {stretch_s:g} s")
    return outcomes, logs


def _errors(document: Document) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for record in records(document, "program"):
        found.setdefault(record["program"], []).append(record["charged_us"] / record["kernel_us"] - 1)
    return found


def _programs(document: Document) -> Sheet | None:
    rows = []
    for name, errors in _errors(document).items():
        mine = [record for record in records(document, "program") if record["program"] == name]
        native, charged = (estimate([record[key] for record in mine]).mean for key in ("kernel_us", "charged_us"))
        theirs = paper()["table2"].get(name)
        cells = (
            (f"{theirs['nvidia_us']}", f"{theirs['fairgv_us']}", f"{theirs['error_percent']}") if theirs else ("-",) * 3
        )
        rows.append((name, f"{native:.1f}", f"{charged:.1f}", f"{100 * estimate(errors).mean:+.1f}", *cells))
    if not rows:
        return None
    columns = ("program", "by events us", "charged us", "error %", "paper: profiler us", "FairGV us", "error %")
    return Sheet(
        "Kernels of programs",
        columns,
        tuple(rows),
        ("Mean length of a kernel; charged: all GPU time over all kernels.",),
    )


def _mixtures(document: Document) -> Sheet | None:
    rows = []
    for record in records(document, "switch"):
        switches = ("-" if value is None else f"{value:.0f}" for value in record["switch_percentiles_us"].values())
        rows.append((f"{record['kernel_us']:g}, natively", "-", str(len(record["switches_us"])), *switches))
    for record in records(document, "mixture"):
        errors = ", ".join(f"{100 * error:+.1f}" for error in record["errors"])
        gaps = ("-" if gap is None else f"{gap:.0f}" for gap in record["gap_percentiles_us"].values())
        rows.append((f"{record['kernel_us']:g}", errors, str(len(record["gaps_us"])), *gaps))
    if not rows:
        return None
    columns = ("kernels of us", "errors of charges %", "hand-overs", "gap us, median", "90 %", "99 %")
    notes = (
        "Two vGPUs of equal weight by the device's own clock. The error of a charge is against the time that the kernels occupied the device;",
        "a gap is from the last kernel of one vGPU to the first of the next, with the device's own switch in it. Natively:",
        "that switch, as the driver shares the device between two queues, with half a kernel in it on average.",
    )
    return Sheet("Charges and hand-overs", columns, tuple(rows), notes)
