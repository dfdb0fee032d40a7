"""What GLoop's evaluation measures, with its programs written anew (benchmarks/gloop).

points: what a scheduling point costs, and a request to the host.
apps: each port by callbacks, plain, and in many launches.
instances: several of one program by callbacks, by their number and by the slice.
shares: a port beside throttles, by weight; how soon kernels give way.
servers: servers of matrix products beside programs that take what they leave.
preemption: lavaMD by callbacks, beside lavaMD by the driver's time slices.

The plain way and the split one are programs without GLoop. Points and apps run natively, the others as guests.

Wrong when something else runs on the device, and where each program has no core for its host: a request's answer is the host's. softgpu's
figures show that the programs run, and nothing more.
"""

import argparse
from collections.abc import Iterator
from typing import ClassVar

from benchmarks.document import Document, Record
from benchmarks.experiment import Reporter, Subjects, names_of, setting
from benchmarks.gloop import apps, many, points, servers, shares
from benchmarks.in_parts import ExperimentInParts
from benchmarks.paper import Finding
from benchmarks.part import Part

PARTS: tuple[Part, ...] = (points.PART, apps.PART, many.PARTS[0], shares.PART, servers.PART, many.PARTS[1])
NAMES = tuple(part.name for part in PARTS)
SHORT = ("lavaMD", "mummergpu", "tpacf")
"""Whose kernels by callbacks take as long as plain ones in the paper, within 2 %."""


class GLoop(ExperimentInParts):
    """`fairgv-bench gloop`."""

    name = "gloop"
    summary = "event-driven kernels: what points cost, and how such programs share the GPU"
    seconds = 3.0
    repetitions = 1
    parts = PARTS
    title = "Event-driven kernels"
    subjects: ClassVar[Subjects] = {
        points.KIND: ("step",),
        apps.KIND: ("app", "way", "system"),
        many.INSTANCES: ("program", "way", "system", "nr", "slice_ms"),
        many.PREEMPTION: ("program", "way", "system", "nr", "slice_ms"),
        shares.ALONE: ("program",),
        shares.KIND: ("target", "weights"),
        servers.KIND: ("way", "nr_servers", "others"),
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Which of them."""
        told = f"of {', '.join(NAMES)} (default all)"
        parser.add_argument("--only", type=names_of(NAMES), default=list(NAMES), metavar="NAME,...", help=told)

    def nr_records(self, options: argparse.Namespace) -> int:
        """Of the parts that are asked for."""
        return int(options.repetitions * sum(part.nr_records(options) for part in PARTS if part.name in options.only))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Part after part, in each repetition."""
        settings = setting(options)
        for repetition in range(options.repetitions):
            for part in PARTS:
                if part.name in options.only:
                    for record in part.measure(options, settings, reporter):
                        yield {**record, "repetition": repetition}

    def findings(self, document: Document) -> list[Finding]:
        """What the paper has a number for."""
        figures = self.figures(document)
        wanted = {
            "gloop_point": ("", [f"points/{points.POINT}/us"]),
            "gloop_launch": ("", ["points/launch over point"]),
            "gloop_slots": ("", ["points/global over shared"]),
            "gloop_threads": ("", ["points/1024 threads over 1"]),
            "gloop_apps": ("the largest", [f"apps/{name}/gloop over plain" for name in SHORT]),
            "gloop_hybridsort": ("", ["apps/hybridsort/gloop over plain"]),
            "gloop_hybridsort_split": ("", ["apps/hybridsort/split over gloop"]),
            "gloop_mummergpu_split": ("", ["apps/mummergpu/split over gloop"]),
            "gloop_grep": ("", ["apps/grep/gloop over plain"]),
            "gloop_images": ("over plain", ["apps/images/gloop over plain"]),
            "gloop_eight": ("", ["instances/throttle/8/time over alone"]),
            "gloop_eight_grep": ("", ["instances/grep/8/time over alone"]),
            "gloop_deviation": ("", ["instances/deviation"]),
        }
        found = []
        for name, (detail, labels) in wanted.items():
            if values := [figures[label] for label in labels if label in figures]:
                found.append(Finding(name, detail, max(values)))
        gains = {nr: figures.get(f"preemption/{nr}/gain") for nr in range(2, 7)}
        return found + [
            Finding("gloop_preemption", f"{nr} programs", each) for nr, each in gains.items() if each is not None
        ]
