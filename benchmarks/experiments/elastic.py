"""Requests and limits (figures 12 and 13 of the Gemini paper): what programs get, beside what they are to get.

lengths: one program alone under a limit of 30 percent, with kernels from 50 us to 10 s.
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
from benchmarks.experiments import joins, lengths, limited
from benchmarks.guests import open_session
from benchmarks.paper import Finding
from benchmarks.sheet import Sheet
from benchmarks.style import head
from scheduler.elastic import Elastic

PARTS = ("lengths", "joins", "limits")
NR_SETS = 20
HALF, FAR = 0.5, 0.7
"""Gemini's, as what it counts deviations by."""


class ElasticShares(Experiment):
    """`fairgv-bench elastic`."""

    name = "elastic"
    summary = (
        "requests and limits: one program, programs that join and leave, limits at random (Gemini's Figures 12 and 13)"
    )
    guest_kinds = ("process", "vm")
    seconds = 6.0
    repetitions = 1
    subjects: ClassVar[Subjects] = {lengths.KIND: ("way",), joins.KIND: (), limited.KIND: ("seed", "set")}

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
        """One for each length, one for the programs that join and leave, one for each set of limits."""
        nr = {"lengths": len(lengths.ways_on(options.device)), "joins": 1, "limits": options.sets}
        return int(options.repetitions * sum(nr[part] for part in set(options.parts)))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Guests are opened before the first one works, and stay open when their programs leave."""
        settings = setting(options)
        for repetition in range(options.repetitions):
            if "lengths" in options.parts:
                yield from lengths.measured(settings, options.seconds, repetition, reporter)
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
        """Of all parts."""
        return [*lengths.sheet(document), *joins.sheet(document), *limited.sheets(document)]

    def figures(self, document: Document) -> dict[str, float]:
        """The most points that a program alone is off its limit, and that a share in a stretch is off its goal, by kernels and by charges; of
        limits the part of small deviations, and the largest."""
        found = {f"lengths/{way}/farthest": points for way, points in lengths.farthest(document).items()}
        if runs := joins.by_stretch(document):
            found["joins/farthest"] = max(
                abs(joins.deviation(record, stretch, guest))
                for (_, guest), each in runs.items()
                for record, stretch in each
            )
            found["joins/farthest part"] = max(
                abs(joins.part(record, stretch, guest) - stretch.goals[guest])
                for (_, guest), each in runs.items()
                for record, stretch in each
            )
        for way in limited.WAYS:
            if points := limited.deviations(document, way):
                found[f"limits/{way}/small"] = limited.small_part(points)
                found[f"limits/{way}/largest"] = max(points)
        return found

    def findings(self, document: Document) -> list[Finding]:
        """Of one program by what was charged, else by kernels, which are what programs get done."""
        found = [
            Finding("gemini_one_limit", f"kernels of {way}", points / 100)
            for way, points in lengths.farthest(document).items()
        ]
        if (farthest := self.figures(document).get("joins/farthest")) is not None:
            found.append(Finding("gemini_joins", "", farthest / 100))
        if points := limited.deviations(document, "kernels"):
            parts = (sum(each < HALF for each in points), sum(each > FAR for each in points))
            names = ("gemini_limits_half", "gemini_limits_far")
            found += [Finding(name, "", part / len(points)) for name, part in zip(names, parts, strict=True)]
        return found

    def plot(self, document: Document, figure: Any) -> None:
        """What one program has, shares over time, and how many deviations of limits are how large."""
        drawn = [
            (finding(document), draw)
            for kind, finding, draw in (
                (lengths.KIND, lengths.finding, lengths.draw),
                (joins.KIND, joins.finding, joins.draw),
                (limited.KIND, limited.finding, limited.draw),
            )
            if records(document, kind)
        ]
        if not drawn:
            raise NotMeasurableError("nothing was measured")
        if len(drawn) > 1:
            figure.set_size_inches(9, 4 * len(drawn))
        for axes, (_, draw) in zip(figure.subplots(len(drawn), 1, squeeze=False)[:, 0], drawn, strict=True):
            draw(axes, document)
        head(figure, "; ".join(finding for finding, _ in drawn), document)
