"""How busy the GPU is beside a guest that sleeps (Figure 10 of the paper): what one leaves is for the others.

One guest runs BlackScholes without pause; the other runs kernels of the length of the paper's matrixMul and sleeps for a part of the time,
counted with the GPU to itself. Utilisation is what both reach, each as a part of what it reaches alone without sleep. A scheduler that
kept the sleeper's half for it would leave the GPU idle while it sleeps: that value stands beside it.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError
from benchmarks.experiment import Experiment, Reporter, numbers, setting, systems
from benchmarks.experiments.sharing import ALONE_PART, Attempts, Mixture, alone, programs_of
from benchmarks.grid import Grid
from benchmarks.paper import Finding, paper
from benchmarks.ratios import estimate
from benchmarks.workloads import sized, spin
from scheduler.registry import DEFAULT_POLICY

KERNEL_US = 207.0
QUEUE = 16


class WorkConserving(Experiment):
    """`fairgv-bench work-conserving`."""

    name = "work-conserving"
    summary = "GPU utilisation beside a guest that sleeps (Figure 10)"
    guest_kinds = ("process", "vm")
    has_systems = True
    seconds = 4.0

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """How long the sleeper sleeps."""
        parser.add_argument(
            "--sleep-percent",
            type=numbers,
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
        """One for each system and sleep."""
        return int(options.repetitions * len(options.sleep_percent) * len(systems(options)))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """What both reach alone is measured in each repetition."""
        settings = setting(options)
        busy = sized(options.program[0], options.device)
        attempts = Attempts(systems(options), reporter)
        for repetition in range(options.repetitions):
            reporter.doing(f"{busy.label}: alone")
            part_s = options.seconds * ALONE_PART
            reached = [
                alone(each, DEFAULT_POLICY, settings, part_s).throughput for each in (busy, spin(KERNEL_US, QUEUE))
            ]
            for percent in options.sleep_percent:
                sleep_us = KERNEL_US * QUEUE * percent / (100 - percent)
                mixed = Mixture(f"sleep of {percent:g} %", (1, 1), (busy, spin(KERNEL_US, QUEUE, sleep_us)))
                for system in list(attempts.systems):
                    outcomes = attempts.together(system, mixed, settings, options.seconds)
                    if outcomes is not None:
                        parts = [each.throughput / one for each, one in zip(outcomes, reached, strict=True)]
                        yield {
                            "kind": "utilisation",
                            "program": busy.label,
                            "sleep_percent": percent,
                            "system": system,
                            "repetition": repetition,
                            "parts": parts,
                        }

    def grids(self, document: Document) -> list[Grid]:
        """One row for each sleep and system."""
        rows = []
        for (percent, system), each in _by_sleep(document).items():
            cells = (estimate([record["parts"][index] for record in each]).text() for index in (0, 1))
            total = estimate([sum(record["parts"]) for record in each]).text()
            rows.append((f"{percent:g}", system, total, *cells, f"{_kept(percent):.2f}"))
        columns = ("sleep %", "policy", "utilisation", "the busy one", "the sleeper", "were its half kept for it")
        notes = ("Throughputs, each as a part of what the program reaches alone without sleep.",)
        return [Grid("GPU utilisation beside a sleeper", columns, tuple(rows), notes)] if rows else []

    def findings(self, document: Document) -> list[Finding]:
        """Of each sleep under the default policy."""
        return [
            Finding("work_conserving", f"{percent:g} %, {system}", estimate([sum(one["parts"]) for one in each]).mean)
            for (percent, system), each in _by_sleep(document).items()
            if system == DEFAULT_POLICY and percent > 0
        ]

    def plot(self, document: Document, figure: Any) -> None:
        """Utilisation over sleep."""
        axes = figure.subplots()
        found = _by_sleep(document)
        for system in dict.fromkeys(system for _, system in found):
            points = {percent: each for (percent, by), each in found.items() if by == system}
            means = [estimate([sum(record["parts"]) for record in each]).mean for each in points.values()]
            axes.plot(list(points), means, "o-", label=system)
        sleeps = sorted({percent for percent, _ in found})
        axes.plot(sleeps, [_kept(percent) for percent in sleeps], ":", color="gray", label="were its half kept for it")
        axes.set(xlabel="sleep, % of the sleeper's time", ylabel="utilisation", ylim=(0, 1.2))
        axes.legend(fontsize="small")


def _kept(percent: float) -> float:
    """Utilisation if the sleeper's half of the GPU were idle while it sleeps."""
    return 1 - 0.5 * percent / 100


def _by_sleep(document: Document) -> dict[tuple[float, str], list[Record]]:
    found: dict[tuple[float, str], list[Record]] = {}
    for record in records(document, "utilisation"):
        found.setdefault((record["sleep_percent"], record["system"]), []).append(record)
    return found
