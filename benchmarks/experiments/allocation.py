"""What memory of the device costs a guest: getting it and giving it back, by size, and kernels and copies on it.

Three systems follow each other in each repetition, each in the same program: native; FairGV with `memory = "span"`, where linear memory lies
at addresses that the guest proposes; and FairGV with `memory = "driver"`, where it lies where the driver puts it. A ratio is of two runs of one
repetition.

malloc: cudaMalloc and cudaFree. released, kept: cudaMallocAsync, cudaFreeAsync and cudaStreamSynchronize on the default pool, which gives back
all at the synchronisation, or keeps all. small: pieces of 1 byte to 1 MiB, the same ones in every run, 1,000 at a time. kernel, copies: on one
allocation, by the device's clock.

    fairgv-bench allocation --sizes 1K,1M,1G --plot allocation.png

Wrong when somebody else's work is on the device: cudaFree waits for it. On softgpu kernels and copies are the CPU's, and shared with whoever
waits for them.
"""

import argparse
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import fmean, median
from typing import Any, ClassVar

from backend_host.errors import ConfigError
from backend_host.sizes import format_size, parse_size
from benchmarks.build import build
from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiment import Experiment, Reporter, Subjects, natural_number, setting
from benchmarks.guests import NATIVE, Session, open_session, run
from benchmarks.ratios import estimate
from benchmarks.sheet import Sheet
from benchmarks.style import LESS, head, log_axis, round_values
from benchmarks.systems import OURS
from benchmarks.workloads import parse_report

SIZES = "1K,1M,2M,32M,256M,1G,8G"
SPAN, DRIVER = "span", "driver"
HOW_TO_READ = "Medians of all repetitions. Span: at addresses that the guest proposes; driver: at those of the driver. Ratios are the span's."
"""By the setting `memory` of their daemons."""
GUESTS = (SPAN, DRIVER)
SYSTEMS = (NATIVE, *GUESTS)
WAYS: Mapping[str, str] = {
    "malloc": "cudaMalloc, cudaFree",
    "released": "a pool that gives all back",
    "kept": "a pool that keeps all",
}
USES = ("kernel", "to_device", "from_device")
USED_MIB: Mapping[str, int] = {"cuda": 1024, "soft": 64}
USE_AIM = "1.000 ± 0.005"
REGION_BYTES = 1 << 30
KIND = "allocation"
KIB = 1024


class Allocation(Experiment):
    """`fairgv-bench allocation`."""

    name = "allocation"
    summary = "memory of the device: getting it and giving it back by size, kernels and copies on it, beside native"
    repetitions = 5
    subjects: ClassVar[Subjects] = {KIND: ("system",)}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Which sizes, and how often."""
        parser.add_argument("--sizes", type=sizes, default=sizes(SIZES), metavar="SIZE,...", help=f"({SIZES})")
        parser.add_argument("--rounds", type=natural_number, default=20, help="of each size in one run (20)")
        parser.add_argument("--small", type=natural_number, default=10_000, metavar="N", help="small pieces (10000)")
        told = ", ".join(f"{mib} on {device}" for device, mib in USED_MIB.items())
        parser.add_argument("--mib", type=natural_number, help=f"size of what kernels and copies use ({told})")

    def check(self, options: argparse.Namespace) -> None:
        """The device is known."""
        options.mib = options.mib or USED_MIB[options.device]

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each run of the program."""
        return int(options.repetitions * len(SYSTEMS))

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Both daemons serve from the beginning to the end."""
        words = [str(number) for number in (options.rounds, options.small, options.mib, *options.sizes)]
        with contextlib.ExitStack() as stack:
            sessions = {system: stack.enter_context(_session(system, options)) for system in SYSTEMS}
            for repetition in range(options.repetitions):
                for system, session in sessions.items():
                    reporter.doing(f"memory, {system}")
                    with reporter.tolerating(system):
                        found = parse_report(run(session, 0, build("allocation"), words).checked("allocation"))
                        if system == NATIVE and repetition == 0:
                            _tell_left_out(found, options.sizes, reporter)
                        yield {"kind": KIND, "system": system, "repetition": repetition, "mib": options.mib, **found}

    def sheets(self, document: Document) -> list[Sheet]:
        """By size, and what does not go by size."""
        return [sheet for sheet in (_by_size(document), _others(document)) if sheet is not None]

    def figures(self, document: Document) -> dict[str, float]:
        """Times over native, and parts of native speed, of each guest."""
        found = {}
        for system in GUESTS:
            for way in WAYS:
                for nr_bytes, each in ratios(document, system, way).items():
                    found[f"{system}/{way}/{format_size(nr_bytes)}/time over native"] = fmean(each)
            if each := ratios_of(document, system, "small_us"):
                found[f"{system}/small/time over native"] = fmean(each)
            for use in USES:
                if each := ratios_of(document, system, use):
                    found[f"{system}/{use}/of native"] = fmean(each)
        return found

    def plot(self, document: Document, figure: Any) -> None:
        """Time by size, a panel for each way, with what the span costs as its title."""
        if not records(document, KIND):
            raise NotMeasurableError("nothing was measured")
        from matplotlib.ticker import LogLocator, NullLocator  # noqa: PLC0415 - an optional dependency

        pictures = figure.subplots(1, len(WAYS), sharey=True)
        for axes, (way, words) in zip(pictures, WAYS.items(), strict=True):
            for system in SYSTEMS:
                points = {nr_bytes: sum(us) for nr_bytes, us in steps(document, system, way).items()}
                axes.plot(list(points), list(points.values()), "o-", markersize=4, label=_named(system))
            axes.set(xscale="log")
            axes.set_xlabel("size")
            axes.set_title(f"{words}:\n{_finding(document, way)}", fontsize="small")
            axes.xaxis.set_major_locator(LogLocator(KIB))
            axes.xaxis.set_major_formatter(lambda nr_bytes, _: format_size(round(nr_bytes)))
            axes.xaxis.set_minor_locator(NullLocator())
        all_us = [sum(us) for system in SYSTEMS for way in WAYS for us in steps(document, system, way).values()]
        log_axis(pictures[0].yaxis, [each for each in round_values(min(all_us), max(all_us)) if f"{each:e}"[0] == "1"])
        pictures[0].set_ylabel(f"us to get it and give it back\n{LESS}")
        pictures[0].legend()
        ours = [each for way in WAYS for each in _over_native(document, way)]
        finding = "Memory of the device"
        if ours:
            quicker = sum(each <= 1 for each in ours)
            finding = f"Memory comes and goes as fast as natively or faster in {quicker} of {len(ours)} sizes and ways"
        head(figure, finding, document, HOW_TO_READ)


def sizes(text: str) -> list[int]:
    """Comma-separated sizes above 0, from the least to the largest, for argparse."""
    try:
        found = sorted({parse_size(word) for word in text.split(",")})
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if found[0] < 1:
        raise argparse.ArgumentTypeError("no memory has a size of 0")
    return found


def steps(document: Document, system: str, way: str) -> dict[int, tuple[float, ...]]:
    """By size, the us of each step: medians over the repetitions."""
    found: dict[int, list[list[float]]] = {}
    for record in _records(document, system).values():
        for nr_bytes, *us in record[way]:
            found.setdefault(nr_bytes, []).append(us)
    return {nr_bytes: tuple(map(median, zip(*runs, strict=True))) for nr_bytes, runs in found.items()}


def ratios(document: Document, system: str, way: str) -> dict[int, list[float]]:
    """By size, time over native of all steps together, one for each repetition."""
    found: dict[int, list[float]] = {}
    for ours, native in _pairs(document, system):
        beside = {nr_bytes: sum(us) for nr_bytes, *us in native[way]}
        for nr_bytes, *us in ours[way]:
            if nr_bytes in beside:
                found.setdefault(nr_bytes, []).append(sum(us) / beside[nr_bytes])
    return found


def ratios_of(document: Document, system: str, name: str) -> list[float]:
    """Of a single figure over native's, one for each repetition."""
    return [ours[name] / native[name] for ours, native in _pairs(document, system)]


def _session(system: str, options: argparse.Namespace) -> contextlib.AbstractContextManager[Session]:
    plain = setting(options, REGION_BYTES)
    if system == NATIVE:
        return open_session(NATIVE, plain)
    return open_session(OURS, replace(plain, daemon={**plain.daemon, "memory": system}))


def _tell_left_out(found: Record, wanted: list[int], reporter: Reporter) -> None:
    there = {nr_bytes for nr_bytes, *_ in found["malloc"]}
    if not there:
        raise ProgramFailedError("no size fits half of the device's memory")
    for nr_bytes in wanted:
        if nr_bytes not in there:
            reporter.refused(f"{format_size(nr_bytes)}: more than half of the device's memory")


def _records(document: Document, system: str) -> dict[int, Record]:
    return {record["repetition"]: record for record in records(document, KIND) if record["system"] == system}


def _pairs(document: Document, system: str) -> list[tuple[Record, Record]]:
    """Of one system and native, those of the same repetition."""
    native = _records(document, NATIVE)
    return [(record, native[number]) for number, record in _records(document, system).items() if number in native]


def _finding(document: Document, way: str) -> str:
    """What the span costs, from its best size to its worst."""
    means = _over_native(document, way)
    return f"{min(means):.2g} to {max(means):.2g} times native" if means else "nothing to compare"


def _over_native(document: Document, way: str) -> list[float]:
    """The span's time by size, means of all repetitions."""
    return [fmean(each) for each in ratios(document, SPAN, way).values()]


def _named(system: str) -> str:
    return system if system == NATIVE else f"FairGV, {system}"


def _by_size(document: Document) -> Sheet | None:
    rows = []
    for way, words in WAYS.items():
        found = {system: steps(document, system, way) for system in SYSTEMS}
        beside = {system: ratios(document, system, way) for system in GUESTS}
        for nr_bytes in sorted({nr_bytes for each in found.values() for nr_bytes in each}):
            us = (" + ".join(f"{each:.1f}" for each in found[system].get(nr_bytes, ())) or "-" for system in SYSTEMS)
            over = (_ratio(beside[system].get(nr_bytes, []), 2) for system in GUESTS)
            rows.append((words, format_size(nr_bytes), *us, *over, "at most 1" if way == "malloc" else ""))
    if not rows:
        return None
    columns = ("way", "size", "native, us", "span, us", "driver, us", "span over native", "driver over native", "aim")
    notes = (
        "Medians of each call: getting it, giving it back, and with a pool waiting for the stream. Over native: of their sum.",
        "A pool that gives all back has release threshold 0, one that keeps all the greatest.",
    )
    return Sheet("Getting memory and giving it back", columns, tuple(rows), notes)


def _others(document: Document) -> Sheet | None:
    if not records(document, KIND):
        return None
    rows = []
    for name, words, unit, scale in (
        ("small_us", "small pieces", "ms", 1e-3),
        ("kernel", "kernel that reads and writes", "GB/s", 1),
        ("to_device", "copy of pinned memory to it", "GB/s", 1),
        ("from_device", "copy of pinned memory from it", "GB/s", 1),
    ):
        found = {system: [each[name] for each in _records(document, system).values()] for system in SYSTEMS}
        figures = (f"{scale * median(found[system]):.4g}" if found[system] else "-" for system in SYSTEMS)
        over = (_ratio(ratios_of(document, system, name), 3) for system in GUESTS)
        rows.append((words, unit, *figures, *over, USE_AIM if name in USES else ""))
    columns = ("what", "unit", "native", "span", "driver", "span over native", "driver over native", "aim")
    mib = records(document, KIND)[-1]["mib"]
    notes = (f"Kernel and copies: on one allocation of {mib} MiB, by the device's clock; medians.",)
    return Sheet("Small pieces, kernels and copies", columns, tuple(rows), notes)


def _ratio(each: list[float], digits: int) -> str:
    return estimate(each).text(digits) if each else "-"
