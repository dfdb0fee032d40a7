"""How busy the GPU is beside a guest that sleeps (Figure 10 of the paper): what one leaves is for the others.

One guest runs BlackScholes without pause; the other runs kernels of the length of the paper's matrixMul and sleeps for a part of the time,
counted with the GPU to itself. Utilisation is what both reach, each as a part of what it reaches alone without sleep. A scheduler that
kept the sleeper's half for it would leave the GPU idle while it sleeps: that value stands beside it.
"""

import argparse
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, ClassVar

from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError
from benchmarks.experiment import Experiment, Reporter, Subjects, amounts, setting, systems
from benchmarks.experiments.sharing import ALONE_FRACTION, Attempts, Baselines, Mixture, programs_of
from benchmarks.paper import Finding, paper
from benchmarks.ratios import estimate
from benchmarks.sheet import Sheet
from benchmarks.stretch import Outcome
from benchmarks.style import GREY, MORE, at_least, head, spread, told_whiskers
from benchmarks.systems import OURS, in_words
from benchmarks.workloads import sized, spin

KERNEL_US = 207.0
QUEUE = 16


class WorkConserving(Experiment):
    """`fairgv-bench work-conserving`."""

    name = "work-conserving"
    summary = "GPU utilisation beside a guest that sleeps (Figure 10)"
    guest_kinds = ("process", "vm")
    has_systems = True
    seconds = 4.0
    subjects: ClassVar[Subjects] = {"alone": ("mixture",), "utilisation": ("program", "sleep_percent", "system")}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """How long the sleeper sleeps."""
        parser.add_argument(
            "--sleep-percent",
            type=amounts,
            default=[0.0, *map(float, paper()["figure10"]["sleep_percent"])],
            metavar="P,...",
            help="of the sleeper's time (default: 0 and those of Figure 10)",
        )
        parser.add_argument(
            "--program", type=programs_of, default=["BlackScholes"], metavar="NAME", help="beside it (BlackScholes)"
        )

    def check(self, options: argparse.Namespace) -> None:
        """A part of the time is below the whole."""
        if not all(0 <= percent < 100 for percent in options.sleep_percent):
            raise NotMeasurableError("--sleep-percent: a part of the time, from 0 to below 100")

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for what is reached alone, one for each system and sleep."""
        return int(options.repetitions * (1 + len(options.sleep_percent) * len(systems(options))))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """What both reach alone is measured in each repetition."""
        settings = setting(options)
        busy, unslept = sized(options.program[0], options.device), spin(KERNEL_US, QUEUE)
        attempts = Attempts(systems(options), reporter)
        for repetition in range(options.repetitions):
            baselines = Baselines(settings, options.seconds * ALONE_FRACTION)
            reporter.doing(f"{busy.label}: alone")
            with reporter.tolerating("alone"):
                both = Mixture("alone", (1, 1), (busy, unslept))
                baselines.measure(both)
                yield baselines.record(both, repetition)
                for percent in options.sleep_percent:
                    sleep_us = KERNEL_US * QUEUE * percent / (100 - percent)
                    mixed = Mixture(f"sleep of {percent:g} %", (1, 1), (busy, spin(KERNEL_US, QUEUE, sleep_us)))
                    for system, outcomes in attempts.under_each(mixed, settings, options.seconds):
                        yield {
                            "kind": "utilisation",
                            "program": busy.label,
                            "sleep_percent": percent,
                            "system": system,
                            "repetition": repetition,
                            "parts": _parts(outcomes, [baselines.guest[each] for each in both.workloads]),
                            "parts_native": _parts(outcomes, [baselines.native[each] for each in both.workloads]),
                        }

    def sheets(self, document: Document) -> list[Sheet]:
        """One row for each sleep and system."""
        rows = []
        for (percent, system), each in _by_sleep(document).items():
            cells = (estimate([record["parts"][index] for record in each]).text() for index in (0, 1))
            total, native = (
                estimate([sum(record[key]) for record in each]).text() for key in ("parts", "parts_native")
            )
            rows.append((f"{percent:g}", system, total, *cells, native, f"{_kept(percent):.2f}"))
        parts = ("utilisation", "the busy one", "the sleeper", "utilisation, over native")
        columns = ("sleep %", "policy", *parts, "were its half kept for it")
        notes = (
            "Throughputs, each as a part of what the program reaches alone without sleep: as a guest, then natively.",
        )
        return [Sheet("GPU utilisation beside a sleeper", columns, tuple(rows), notes)] if rows else []

    def findings(self, document: Document) -> list[Finding]:
        """Of each sleep under the default policy."""
        return [
            Finding("work_conserving", f"{percent:g} %, {system}", estimate([sum(one["parts"]) for one in each]).mean)
            for (percent, system), each in _by_sleep(document).items()
            if system == OURS and percent > 0
        ]

    def plot(self, document: Document, figure: Any) -> None:
        """Utilisation over sleep."""
        axes = figure.subplots()
        found = _by_sleep(document)
        for system in dict.fromkeys(system for _, system in found):
            points = {percent: each for (percent, by), each in found.items() if by == system}
            runs = [[float(sum(record["parts"])) for record in each] for each in points.values()]
            axes.errorbar(list(points), list(map(fmean, runs)), spread(runs), fmt="o-", label=in_words(system))
        sleeps = sorted({percent for percent, _ in found})
        axes.plot(sleeps, [_kept(percent) for percent in sleeps], ":", color=GREY, label="were its half kept for it")
        axes.set(
            xlabel="how much of the time one of two guests sleeps, %", ylabel=f"done together, of one alone\n{MORE}"
        )
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower left")
        sums = [fmean(sum(record["parts"]) for record in each) for (_, system), each in found.items() if system == OURS]
        finding = "What two guests get done while one of them sleeps"
        if sums:
            finding = (
                f"While one guest sleeps the other has the GPU: together at least {at_least(min(sums))} of one alone"
            )
        head(figure, finding, document, *told_whiskers([[1.0] * len(each) for each in found.values()]))


def _parts(outcomes: Sequence[Outcome], alone: Sequence[float]) -> list[float]:
    return [outcome.throughput / reached for outcome, reached in zip(outcomes, alone, strict=True)]


def _kept(percent: float) -> float:
    """Utilisation if the sleeper's half of the GPU were idle while it sleeps."""
    return 1 - 0.5 * percent / 100


def _by_sleep(document: Document) -> dict[tuple[float, str], list[Record]]:
    found: dict[tuple[float, str], list[Record]] = {}
    for record in records(document, "utilisation"):
        found.setdefault((record["sleep_percent"], record["system"]), []).append(record)
    return found
