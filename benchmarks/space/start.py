"""How soon a critical program's short kernel has begun and ended beside another process' blocks: ways of sharing side by side.

Natively (programs/start.cu), and through FairGV (start_guests.py). A guest's times have its way to the host in them, alone as beside others.
"""

import argparse
import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from benchmarks.devices import native_environment
from benchmarks.document import Document, Record, records
from benchmarks.errors import ProgramFailedError
from benchmarks.experiment import Reporter
from benchmarks.guests import Setting
from benchmarks.mps import mps_server
from benchmarks.part import Part
from benchmarks.sheet import Sheet
from benchmarks.space import start_guests
from benchmarks.space.build import build
from benchmarks.style import LESS, log_axis

KIND = "space start"
LIMIT_S = 60.0
WORDS = {
    "cuda": ("--blocks", "0,5,20,100,500", "--rounds", "200"),
    "soft": ("--blocks", "0,50", "--rounds", "2", "--grid-us", "100"),
}


@dataclass(frozen=True)
class Way:
    """A way of sharing: what it is called, what programs/start.cu calls it, and whether both processes are clients of MPS."""

    label: str
    word: str
    has_mps: bool = True
    is_for_soft: bool = False
    """softgpu has no MPS, and needs none where best effort's blocks end by themselves."""


SLICES, HALF, WORD = "time slices", "MPS, half kept free", "MPS, all given up on a word"
NATIVE_WAYS = (
    Way(SLICES, "plain", has_mps=False, is_for_soft=True),
    Way("MPS alone", "plain"),
    Way("MPS, best effort at low priority", "low"),
    Way("MPS, half of the threads for best effort", "part"),
    Way("MPS, best effort in a green context of half", "green"),
    Way(HALF, "half"),
    Way(WORD, "word", is_for_soft=True),
)


LABELS = (*(way.label for way in NATIVE_WAYS), *start_guests.LABELS)
"""In the order of the table."""


def _ways(device: str) -> list[Way]:
    return [way for way in NATIVE_WAYS if device == "cuda" or way.is_for_soft]


def _nr_records(options: argparse.Namespace) -> int:
    natively = len(_ways(options.device)) * (WORDS[options.device][1].count(",") + 1)
    return natively + start_guests.nr_records(options.device)


def _measure(options: argparse.Namespace, settings: Setting, reporter: Reporter) -> Iterator[Record]:
    device = options.device
    for has_mps, ways in groupby(_ways(device), lambda way: way.has_mps and device == "cuda"):
        with reporter.tolerating("MPS"), _environment(device, has_mps=has_mps) as environment:
            for way in ways:
                reporter.doing(way.label)
                with reporter.tolerating(way.label):
                    for found in _run(way, device, environment):
                        yield {"kind": KIND, **found, "way": way.label}
    for found in start_guests.measure(device, settings, reporter):
        yield {"kind": KIND, **found}


@contextlib.contextmanager
def _environment(device: str, *, has_mps: bool) -> Iterator[Mapping[str, str]]:
    if has_mps:
        with mps_server(device) as environment:
            yield environment
    else:
        yield native_environment(device)


def _run(way: Way, device: str, environment: Mapping[str, str]) -> list[Record]:
    command = [str(build("start")), way.word, *WORDS[device]]
    try:
        finished = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ProgramFailedError(f"start {way.word} did not end within {LIMIT_S:g} s") from None
    if finished.returncode:
        raise ProgramFailedError(f"start {way.word}: {finished.stderr.strip() or finished.returncode}")
    return [json.loads(line) for line in finished.stdout.splitlines()]


def _by_way(document: Document) -> dict[str, dict[float, Record]]:
    """Of each way that was measured, in the order of the table, the records by the length of best effort's blocks."""
    found: dict[str, dict[float, Record]] = {}
    for record in records(document, KIND):
        found.setdefault(record["way"], {})[record["block_us"]] = record
    return {label: found[label] for label in LABELS if label in found}


def _sheet(document: Document) -> Sheet | None:
    ways = _by_way(document)
    if not ways:
        return None
    lengths = sorted({length for found in ways.values() for length in found})
    rows = tuple((label, *(_cell(found.get(length)) for length in lengths)) for label, found in ways.items())
    columns = ("way", *(f"beside blocks of {length:g} us" if length else "alone" for length in lengths))
    notes = (
        "Median and 99th percentile of a short kernel from its launch to its end, in us, and what best effort kept.",
    )
    return Sheet("How soon a kernel has ended", columns, rows, notes)


def _cell(record: Record | None) -> str:
    if record is None:
        return "-"
    kept = f", {record['kept']:.2f}" if record["block_us"] else ""
    return f"{record['p50_us']:.1f}, {record['p99_us']:.1f}{kept}"


def _figures(document: Document) -> dict[str, float]:
    found = {}
    for label, by_length in _by_way(document).items():
        alone = by_length.get(0)
        for length, record in by_length.items():
            if alone and length:
                name = f"start/{label}/{length:g}"
                found[f"{name}/median over alone, us"] = record["p50_us"] - alone["p50_us"]
                found[f"{name}/p99 over alone, us"] = record["p99_us"] - alone["p99_us"]
                found[f"{name}/kept"] = record["kept"]
    return found


def _draw(axes: Any, document: Document) -> str | None:
    ways = _by_way(document)
    for label, found in ways.items():
        lengths = [length for length in sorted(found) if length]
        if lengths:
            axes.plot(
                lengths,
                [found[length]["p50_us"] for length in lengths],
                "--o" if label == SLICES else "-o",
                label=label,
            )
    if not ways:
        return None
    log_axis(axes.xaxis, [5, 20, 100, 500])
    log_axis(axes.yaxis, [10, 30, 100, 300, 1000, 3000])
    axes.set_xlabel("us of a best-effort block")
    axes.set_ylabel(f"us of a kernel, in the median {LESS}")
    axes.legend(fontsize="x-small")
    return _finding(ways)


def _finding(ways: Mapping[str, Mapping[float, Record]]) -> str:
    slices, word = ways.get(SLICES, {}), ways.get(WORD, {})
    shared = sorted(length for length in set(slices) & set(word) if length)
    if not shared:
        return "How soon a kernel has ended beside another process"
    us, sliced = (found[shared[0]]["p50_us"] for found in (word, slices))
    return f"Beside blocks of {shared[0]:g} us a kernel ends in {us:.0f} us where all is given up on a word, in time slices in {sliced:.0f}"


PART = Part("start", _nr_records, _measure, _sheet, _figures, _draw)
