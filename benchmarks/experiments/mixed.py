"""A program beside a background of kernels of another length (Figure 11 of the paper): its run time over that alone; 2 is fair for two.

The background is `spin`, whose kernels last exactly as long as asked for; it keeps a queue of them. Both count in one stretch, and the run time
is that of the same work at the stretch's throughput.
"""

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.document import Document, Record, records
from benchmarks.experiment import Experiment, Reporter, positives, setting, systems
from benchmarks.experiments.sharing import COMPARED, IDLE_TOGETHER, Mixture, Shared, compare, nr_compared, programs_of
from benchmarks.paper import Finding, is_of_the_paper, paper
from benchmarks.ratios import estimate
from benchmarks.sheet import Sheet
from benchmarks.style import LESS, due, head, limits, log_axis, spread, told_whiskers
from benchmarks.systems import OURS, in_words
from benchmarks.workloads import sized, spin

FAIR = 2.0
QUEUED_US = 20_000
"""The background keeps about so much work in a row, and two kernels at least."""
MOST_QUEUED = 256


class Mixed(Experiment):
    """`fairgv-bench mixed`."""

    name = "mixed"
    summary = "run time beside a background of short and long kernels, over alone (Figure 11)"
    guest_kinds = ("process", "vm")
    has_systems = True
    seconds = 4.0
    subjects = COMPARED

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Programs, and lengths of the background's kernels."""
        parser.add_argument(
            "--program",
            type=programs_of,
            default=list(paper()["figure11"]["programs"]),
            metavar="NAME,...",
            help="in the foreground, one after the other (default: those of Figure 11)",
        )
        parser.add_argument(
            "--background-us",
            type=positives,
            default=[21.0, 207.0, 1605.0, 10_000.0],
            metavar="US,...",
            help="lengths of the background's kernels (default 21,207,1605,10000)",
        )

    def nr_records(self, options: argparse.Namespace) -> int:
        """See `compare`."""
        return nr_compared(len(options.program) * len(options.background_us), options, systems(options))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """See `compare`."""
        mixtures = [
            Mixture(
                f"{name} beside {us:g} us",
                (1, 1),
                (sized(name, options.device), spin(us, min(MOST_QUEUED, max(2, round(QUEUED_US / us))))),
            )
            for name in options.program
            for us in options.background_us
        ]
        for record in compare(mixtures, systems(options), options, setting(options), reporter):
            if record["kind"] == "together":
                program, _, background = record["mixture"].partition(" beside ")
                record |= {"program": program, "background_us": float(background.split()[0])}
            yield record

    def sheets(self, document: Document) -> list[Sheet]:
        """One row for each background, one column for each system."""
        found = _run_times(document)
        if not found:
            return []
        compared = list(dict.fromkeys(system for _, _, system in found))
        rows = []
        for program, background_us in dict.fromkeys((program, us) for program, us, _ in found):
            cells = (found.get((program, background_us, system)) for system in compared)
            texts = (estimate(each).text(2) if each else "-" for each in cells)
            rows.append((program, f"{background_us:g}", *texts, f"{FAIR:g}", _alone_over_native(document, program)))
        columns = ("program", "background us", *compared, "fair share", "alone, over native")
        notes = (
            "Run time over that alone, as a guest. Below 2 the program takes more than its half, above 2 less. The last column: run",
            "time alone, as a guest over native.",
        )
        return [Sheet("Beside a background", columns, tuple(rows), notes)]

    def findings(self, document: Document) -> list[Finding]:
        """
        Of the default policy, which is the paper's, within the paper's lengths: the run time farthest from fair of programs that fill the GPU,
        and the least that one that does not, or its background, gets of its half.
        """
        low, high = paper()["figure11"]["background_us"]
        found: dict[str, dict[float, list[Shared]]] = {}
        for record in records(document, "together"):
            if low <= record["background_us"] <= high and record["system"] == OURS:
                beside = found.setdefault(record["program"], {})
                beside.setdefault(record["background_us"], []).append(Shared(record))
        return [
            _of_claims(program, list(beside.values())) for program, beside in found.items() if is_of_the_paper(program)
        ]

    def figures(self, document: Document) -> dict[str, float]:
        """What whoever got least, the program or its background, got of its half, beside the background that was worst for it."""
        leasts: dict[str, dict[float, list[float]]] = {}
        for record in records(document, "together"):
            each = leasts.setdefault(f"{record['program']}/{record['system']}/least", {})
            each.setdefault(record["background_us"], []).append(Shared(record).least)
        return {name: min(estimate(runs).mean for runs in each.values()) for name, each in leasts.items()}

    def plot(self, document: Document, figure: Any) -> None:
        """One panel for each program."""
        found = _run_times(document)
        panels = list(dict.fromkeys(program for program, _, _ in found))
        drawn = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, program in zip(drawn, panels, strict=True):
            for system in dict.fromkeys(system for _, _, system in found):
                points = {us: each for (of, us, by), each in sorted(found.items()) if (of, by) == (program, system)}
                heights = [fmean(each) for each in points.values()]
                label = in_words(system)
                axes.errorbar(list(points), heights, spread(list(points.values())), fmt="o-", label=label)
            due(axes, "half of the GPU", y=FAIR)
            axes.set(title=program, xlabel="background's kernels, us")
            log_axis(axes.xaxis, sorted({us for _, us, _ in found}))
        drawn[0].set_ylim(limits([FAIR, *(most for each in found.values() for most in each)]))
        drawn[0].set_ylabel(f"run time over that alone\n{LESS}")
        drawn[0].legend(loc="lower left")
        head(
            figure,
            _title(found),
            document,
            "Less than 2: the two leave the GPU to each other.",
            *told_whiskers(list(found.values())),
        )


def _title(found: Mapping[tuple[str, float, str], Sequence[float]]) -> str:
    """The worst of the default policy."""
    times = [fmean(each) for (_, _, system), each in found.items() if system == OURS]
    if not times:
        return "How long a program takes beside kernels of others"
    lengths = sorted(us for _, us, _ in found)
    span = f"{lengths[0]:,g} to {lengths[-1]:,g} us"
    return f"Beside kernels of {span} a program takes at most {max(times):.2f} times as long; {FAIR:g} is fair"


def _of_claims(program: str, backgrounds: Sequence[Sequence[Shared]]) -> Finding:
    """Of the repetitions beside each background."""
    detail = f"{program}, {OURS}"
    together = estimate([each.together for runs in backgrounds for each in runs]).mean
    if together > IDLE_TOGETHER:
        least = min(estimate([each.least for each in runs]).mean for runs in backgrounds)
        return Finding("mixed_least", f"{detail}, {together:.2f} of one alone together", least)
    parts = [estimate([each.normalised[0] for each in runs]).mean for runs in backgrounds]
    times = [FAIR / part if part > 0 else math.inf for part in parts]
    return Finding("mixed", detail, max(times, key=lambda time: abs(time - FAIR)))


def _alone_over_native(document: Document, program: str) -> str:
    guests = [record["guests"][0] for record in records(document, "together") if record["program"] == program]
    return estimate([guest["alone_native"] / guest["alone"] for guest in guests]).text(2)


def _run_times(document: Document) -> dict[tuple[str, float, str], list[float]]:
    """By program, background and system: of all repetitions the program's run time, alone as a guest it is 1."""
    found: dict[tuple[str, float, str], list[float]] = {}
    for record in records(document, "together"):
        guest = record["guests"][0]
        if guest["throughput"] > 0:
            key = (record["program"], record["background_us"], record["system"])
            found.setdefault(key, []).append(guest["alone"] / guest["throughput"])
    return found
