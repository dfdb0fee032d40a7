"""What sharing in space gives a latency-critical program beside a best-effort one.

surfaces (--calibrate): how much slower rounds get beside a best-effort program, and how much progress that makes, for each split. Natively, in
one process.
start: how soon a short kernel has ended beside another process' blocks, by the way of sharing. Natively; MPS for the time of it.
search: what searches of a split come to over recorded surfaces. Without a device.
pairs: the same programs live, each a guest, once the daemon's search has settled.
programs: whole ones, as critical programs of such pairs.
faults: what a fault of one guest of a space costs the others.
turns: gaps between turns of best-effort guests, and their shares by weight.

Wrong when something else runs on the device. softgpu's figures show that the programs run, and nothing more.
"""

import argparse
from collections.abc import Iterator
from typing import ClassVar

from benchmarks.document import Document, Record
from benchmarks.experiment import Reporter, Subjects, names_of, setting
from benchmarks.in_parts import ExperimentInParts
from benchmarks.paper import Finding
from benchmarks.part import Part
from benchmarks.space import faults, pairs, search, start, surfaces, turns

PARTS: tuple[Part, ...] = (surfaces.PART, start.PART, search.PART, *pairs.PARTS, turns.PART, faults.PART)
NAMES = tuple(part.name for part in PARTS if part is not surfaces.PART)


class Space(ExperimentInParts):
    """`fairgv-bench space`."""

    name = "space"
    summary = "sharing in space: critical programs beside best-effort ones"
    seconds = 2.0
    repetitions = 1
    parts = PARTS
    title = "Sharing in space"
    subjects: ClassVar[Subjects] = {
        surfaces.KIND: ("file", "best_effort", "critical"),
        start.KIND: ("way", "block_us"),
        search.KIND: ("search", "target"),
        search.ERRORS: ("predictor",),
        faults.KIND: ("scene", "victim"),
        turns.GAPS: ("where",),
        turns.SHARES: ("where",),
        pairs.KIND: ("best_effort", "critical", "target", "pause_us"),
        pairs.PROGRAM_KIND: ("best_effort", "critical", "target", "pause_us"),
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Which of them."""
        told = f"of {', '.join(NAMES)} (default all)"
        parser.add_argument("--only", type=names_of(NAMES), default=list(NAMES), metavar="NAME,...", help=told)
        surfaces.add_options(parser)
        pairs.add_options(parser)

    def check(self, options: argparse.Namespace) -> None:
        """Where surfaces go."""
        surfaces.check(options)

    def device(self, options: argparse.Namespace) -> str:
        """Searches alone are of the device that the surfaces were recorded on."""
        if [part.name for part in self._parts(options)] == [search.PART.name]:
            recording, _ = search.recorded(options)
            return recording.device
        return super().device(options)

    def nr_records(self, options: argparse.Namespace) -> int:
        """Of the parts that are asked for."""
        return sum(part.nr_records(options) for part in self._parts(options))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Part after part."""
        for part in self._parts(options):
            yield from part.measure(options, setting(options), reporter)

    def findings(self, document: Document) -> list[Finding]:
        """What the paper has a number for."""
        return [*search.findings(document), *surfaces.findings(document), *pairs.findings(document)]

    def _parts(self, options: argparse.Namespace) -> list[Part]:
        if options.calibrate:
            return [surfaces.PART]
        return [part for part in PARTS if part.name in options.only]
