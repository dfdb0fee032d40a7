"""What programs get done that have more memory together than the device.

Each kernel of a program reads all of its memory, and changes part of it. All run through FairGV on a small card made of a large one
(`device_memory_bytes`), with `oversubscribe`.

pair: two programs of 90 % of the card, which compute all the time, alone and together; first all of their data changes, then a tenth. Over
serial: the time that both take together, over that of one after the other.

servers: programs of 14.4 % of the card with a pause behind each request, as many as make 86 to 144 % of it (Gemini, figure 20). Throughput,
over that where all fits, and over that of one after the other.

    fairgv-bench oversubscription --memory 16G --plot oversubscription.png

Wrong when a run is short beside the turns: those last up to 5 s while others wait for their memory.
"""

import argparse
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, ClassVar

from backend_host.errors import ConfigError
from backend_host.sizes import format_size, parse_size
from benchmarks.build import build
from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiment import Experiment, Reporter, Subjects, setting
from benchmarks.guests import Session, open_session
from benchmarks.paper import Finding
from benchmarks.ratios import estimate
from benchmarks.sheet import Sheet
from benchmarks.style import GREY, MORE, at_least, due, head
from benchmarks.systems import OURS
from benchmarks.workloads import parse_report

KIND = "oversubscription"
HOW_TO_READ = "Each program has 14.4 % of a small card, and pauses of 50 ms; a pass reads all of its memory."
PAPERS_NR = 9
"""Servers that allocate 129 % of the card."""
MEMORY: Mapping[str, int] = {"cuda": 16 << 30, "soft": 128 << 20}
PAIR_PART = 0.90
SERVER_PART = 0.14375
"""Six of them make 86 % of the card, ten 144 %."""
SERVERS = range(6, 11)
OVERSUBSCRIBE = 2.0
REGION_BYTES = 64 << 20
START_S = 120.0
"""Most of a program's time to get its memory and fill it."""
END_S = 120.0


@dataclass(frozen=True)
class Load:
    """What each of the programs does: percent of its memory that changes, kernels of a request, and ms of the pause behind it."""

    name: str
    part: float
    changed: float
    passes: int
    pause_ms: float

    def arguments(self, memory_bytes: int) -> Sequence[str]:
        """Of the program."""
        mib = max(1, int(memory_bytes * self.part) >> 20)
        return [str(mib), f"{self.changed:g}", str(self.passes), f"{self.pause_ms:g}"]


LOADS = (
    Load("pair", PAIR_PART, 100, 4, 0),
    Load("pair, little changes", PAIR_PART, 10, 4, 0),
    Load("servers", SERVER_PART, 1, 10, 50),
)


@dataclass(frozen=True)
class Run:
    """So many programs of a load at once."""

    load: Load
    nr: int


RUNS = (*(Run(load, nr) for load in LOADS[:2] for nr in (1, 2)), *(Run(LOADS[2], nr) for nr in (1, *SERVERS)))


class Oversubscription(Experiment):
    """`fairgv-bench oversubscription`."""

    name = "oversubscription"
    summary = "programs with more memory together than the device: throughput, and what moves"
    seconds = 30.0
    repetitions = 1
    subjects: ClassVar[Subjects] = {KIND: ("load", "nr")}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """The card."""
        told = ", ".join(f"{format_size(size)} on {device}" for device, size in MEMORY.items())
        parser.add_argument("--memory", type=_size, metavar="SIZE", help=f"of the small card ({told})")
        names = [load.name for load in LOADS]
        told = f"one of: {'; '.join(names)} (default: all); may be repeated"
        parser.add_argument("--loads", choices=names, action="append", metavar="NAME", help=told)

    def check(self, options: argparse.Namespace) -> None:
        """The device is known."""
        options.memory = options.memory or MEMORY[options.device]
        options.loads = options.loads or [load.name for load in LOADS]

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each run."""
        return int(options.repetitions) * sum(run.load.name in options.loads for run in RUNS)

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """A daemon for each run: what one leaves behind is no other's."""
        for repetition in range(options.repetitions):
            for run in RUNS:
                if run.load.name not in options.loads:
                    continue
                reporter.doing(f"{run.load.name}, {run.nr} programs")
                with reporter.tolerating(f"{run.load.name}, {run.nr} programs"):
                    found = _measure(run, options)
                    yield {"kind": KIND, "load": run.load.name, "nr": run.nr, "repetition": repetition, **found}

    def sheets(self, document: Document) -> list[Sheet]:
        """Throughput, and what moved."""
        rows = []
        for run in RUNS:
            found = _records(document, run.load.name, run.nr)
            if not found:
                continue
            over = over_serial(document, run.load.name, run.nr)
            fitting = over_fitting(document, run.nr) if run.load is LOADS[2] else []
            rows.append(
                (
                    run.load.name,
                    str(run.nr),
                    f"{100 * run.nr * run.load.part:.0f} %",
                    f"{fmean(each['rate'] for each in found):.4g}",
                    estimate(over).text(3) if over else "-",
                    estimate(fitting).text(3) if fitting else "-",
                    f"{fmean(each['out_bytes'] for each in found) / 2**30:.2f}",
                    f"{fmean(each['in_bytes'] for each in found) / 2**30:.2f}",
                    f"{fmean(each['least'] for each in found):.2f}",
                    f"{fmean(each['longest_s'] for each in found):.2f}",
                )
            )
        if not rows:
            return []
        columns = ("load", "programs", "of the card", "passes/s", "time over serial", "of 86 %", "out, GiB", "in, GiB")
        memory = format_size(records(document, KIND)[-1]["memory"])
        notes = (
            f"A card of {memory}. A pass reads all memory of its program. Serial: one program after the other.",
            "Least: passes of the program that had fewest, over the mean. Longest: of any request, with its wait.",
        )
        return [Sheet("More memory than the device has", (*columns, "least", "longest, s"), tuple(rows), notes)]

    def findings(self, document: Document) -> list[Finding]:
        """At the paper's 129 %."""
        over = over_serial(document, LOADS[2].name, PAPERS_NR)
        return [Finding("gemini_memory", f"{PAPERS_NR} servers", 1 / fmean(over))] if over else []

    def figures(self, document: Document) -> dict[str, float]:
        """Time over serial, and throughput over that where all fits."""
        found = {}
        for run in RUNS:
            if run.nr > 1 and (over := over_serial(document, run.load.name, run.nr)):
                found[f"{run.load.name}/{run.nr}/time over serial"] = fmean(over)
            if run.load is LOADS[2] and run.nr > SERVERS[0] and (fitting := over_fitting(document, run.nr)):
                found[f"servers/{run.nr}/of 86 %"] = fmean(fitting)
        return found

    def plot(self, document: Document, figure: Any) -> None:
        """Throughput of the servers by how much of the card they allocate."""
        points = {nr: [each["rate"] for each in _records(document, LOADS[2].name, nr)] for nr in SERVERS}
        points = {nr: rates for nr, rates in points.items() if rates}
        alone = [each["rate"] for each in _records(document, LOADS[2].name, 1)]
        if not points:
            raise NotMeasurableError("no servers were measured")
        axes = figure.subplots()
        at = [100 * nr * SERVER_PART for nr in points]
        axes.plot(at, [fmean(rates) for rates in points.values()], "o-", label="together")
        if alone:
            axes.plot(at, [fmean(alone)] * len(at), "--", color=GREY, label="one after the other")
        due(axes, "all of the card's memory", x=100)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("allocated, % of the card's memory")
        axes.set_ylabel(f"passes a second, all programs\n{MORE}")
        axes.legend()
        last = max(points)
        kept, serial = over_fitting(document, last), over_serial(document, LOADS[2].name, last)
        finding = "Throughput of programs with more memory together than the card"
        if kept and serial:
            finding = (
                f"With {100 * last * SERVER_PART:.0f} % of the card's memory allocated programs do {at_least(fmean(kept))} of what they do "
                f"where all fits, {1 / fmean(serial):.1f} times as much as one after the other"
            )
        head(figure, finding, document, HOW_TO_READ)


def over_serial(document: Document, load: str, nr: int) -> list[float]:
    """The time that programs take together, over that of one after the other; one for each repetition."""
    alone = {each["repetition"]: each["rate"] for each in _records(document, load, 1)}
    return [
        alone[each["repetition"]] / each["rate"]
        for each in _records(document, load, nr)
        if nr > 1 and each["repetition"] in alone and each["rate"]
    ]


def over_fitting(document: Document, nr: int) -> list[float]:
    """The servers' throughput over that of as many as fit; one for each repetition."""
    fitting = {each["repetition"]: each["rate"] for each in _records(document, LOADS[2].name, SERVERS[0])}
    return [
        each["rate"] / fitting[each["repetition"]]
        for each in _records(document, LOADS[2].name, nr)
        if each["repetition"] in fitting
    ]


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _records(document: Document, load: str, nr: int) -> list[Record]:
    return [record for record in records(document, KIND) if (record["load"], record["nr"]) == (load, nr)]


def _measure(run: Run, options: argparse.Namespace) -> Record:
    plain = setting(options, REGION_BYTES)
    swap_bytes = int(options.memory * OVERSUBSCRIBE)
    more = {"device_memory_bytes": options.memory, "oversubscribe": OVERSUBSCRIBE, "swap_bytes": swap_bytes}
    daemon = replace(plain, daemon={**plain.daemon, **more})
    with open_session(OURS, daemon, weights=(1,) * run.nr) as session:
        found = _together(session, run, options)
        accounts = session.accounts()
    passes = [each["passes"] for each in found]
    if any(each["wrong"] for each in found):
        raise ProgramFailedError("a program's memory was not what it should be")
    return {
        "memory": options.memory,
        "passes": passes,
        "rate": sum(each["passes"] / each["seconds"] for each in found),
        "least": min(passes) / fmean(passes) if fmean(passes) else 0.0,
        "longest_s": max(each["longest_s"] for each in found),
        "out_bytes": sum(each.swapped_out_bytes for each in accounts),
        "in_bytes": sum(each.swapped_in_bytes for each in accounts),
    }


def _together(session: Session, run: Run, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All begin their work when all have their memory."""
    program = build("paging")
    with contextlib.ExitStack() as stack:
        running = []
        for index in range(run.nr):
            each = session.start(index, program, run.load.arguments(options.memory))
            stack.callback(each.stop)
            running.append(each)
        for each in running:
            if (line := each.read_line(time.monotonic() + START_S)) != "ready":
                raise ProgramFailedError(f"paging said {line!r}")
        for each in running:
            each.tell(f"{options.seconds:g}")
        return [parse_report(each.finish(options.seconds + END_S).checked("paging")) for each in running]
