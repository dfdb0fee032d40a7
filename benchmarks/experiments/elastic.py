"""Requests and limits (figures 12 and 13 of the Gemini paper): what programs get, beside what they are to get.

joins: three programs of (request, limit) 30 to 60, 40 to 60 and 30 to 40 percent join and leave one after the other.
limits: five programs with limits chosen at random, one set after the other.

    fairgv-bench elastic --seconds 10 --plot elastic.png

Wrong when guests, workers and the device's threads have no core each. Kernels count with the length that they are to have: what lies between
two of them, and turns that go from one program to another, are nobody's.
"""

import argparse
from collections.abc import Iterator
from typing import Any, ClassVar

from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError
from benchmarks.experiment import Experiment, Reporter, Subjects, names_of, natural_number, setting
from benchmarks.experiments import joins, limited
from benchmarks.guests import open_session
from benchmarks.paper import Finding
from benchmarks.sheet import Sheet
from benchmarks.style import head
from scheduler.elastic import Elastic

PARTS = ("joins", "limits")
NR_SETS = 20
HALF, FAR = 0.5, 0.7
"""Gemini's, as what it counts deviations by."""


class ElasticShares(Experiment):
    """`fairgv-bench elastic`."""

    name = "elastic"
    summary = "requests and limits: programs that join and leave, limits at random (Gemini's Figures 12 and 13)"
    guest_kinds = ("process", "vm")
    seconds = 6.0
    repetitions = 1
    subjects: ClassVar[Subjects] = {joins.KIND: (), limited.KIND: ("seed", "set")}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Which parts, and which limits."""
        parser.add_argument(
            "--parts",
            type=names_of(PARTS),
            default=list(PARTS),
            metavar="NAME,...",
            help=f"of {', '.join(PARTS)} (all)",
        )
        parser.add_argument(
            "--sets", type=natural_number, default=NR_SETS, metavar="N", help="of limits (default %(default)d)"
        )
        parser.add_argument(
            "--seed", type=int, default=0, metavar="N", help="the same sets for the same number (default %(default)d)"
        )

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for the programs that join and leave, one for each set of limits."""
        return int(options.repetitions * (("joins" in options.parts) + ("limits" in options.parts) * options.sets))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Guests are opened before the first one works, and stay open when their programs leave."""
        settings = setting(options)
        for repetition in range(options.repetitions):
            if "joins" in options.parts:
                reporter.doing("three programs that join and leave")
                ones, programs = (1,) * len(joins.BOUNDS), [joins.WORKLOAD.path()]
                with (
                    reporter.tolerating("join and leave"),
                    open_session(Elastic.name, settings, ones, programs) as session,
                ):
                    yield joins.watched(session, options.seconds) | {"repetition": repetition}
            if "limits" in options.parts:
                ones, programs = (1,) * limited.NR_PROGRAMS, [limited.WORKLOAD.path()]
                with open_session(Elastic.name, settings, ones, programs) as session:
                    yield from limited.measured(session, options, repetition, reporter)

    def sheets(self, document: Document) -> list[Sheet]:
        """Of both parts."""
        return [*joins.sheet(document), *limited.sheets(document)]

    def figures(self, document: Document) -> dict[str, float]:
        """The most points that a share in a stretch is off its goal; of limits the part of small deviations, and the largest."""
        found = {}
        if runs := joins.by_stretch(document):
            found["joins/farthest"] = max(
                abs(joins.deviation(record, stretch, guest))
                for (_, guest), each in runs.items()
                for record, stretch in each
            )
        for way in limited.WAYS:
            if points := limited.deviations(document, way):
                found[f"limits/{way}/small"] = limited.small_part(points)
                found[f"limits/{way}/largest"] = max(points)
        return found

    def findings(self, document: Document) -> list[Finding]:
        """By kernels, which are what programs get done."""
        found = []
        if (farthest := self.figures(document).get("joins/farthest")) is not None:
            found.append(Finding("gemini_joins", "", farthest / 100))
        if points := limited.deviations(document, "kernels"):
            parts = (sum(each < HALF for each in points), sum(each > FAR for each in points))
            names = ("gemini_limits_half", "gemini_limits_far")
            found += [Finding(name, "", part / len(points)) for name, part in zip(names, parts, strict=True)]
        return found

    def plot(self, document: Document, figure: Any) -> None:
        """Shares over time, and how many deviations of limits are how large."""
        joined = records(document, joins.KIND)
        has_limits = bool(records(document, limited.KIND))
        if not joined and not has_limits:
            raise NotMeasurableError("nothing was measured")
        if joined and has_limits:
            figure.set_size_inches(9, 8)
        panels = list(figure.subplots(bool(joined) + has_limits, 1, squeeze=False)[:, 0])
        if joined:
            joins.draw(panels.pop(0), joined[-1])
        if has_limits:
            limited.draw(panels.pop(0), document)
        findings = [
            *([joins.finding(document)] if joined else []),
            *([limited.finding(document)] if has_limits else []),
        ]
        head(figure, "; ".join(findings), document)
