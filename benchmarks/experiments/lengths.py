"""One program alone under a limit, with kernels from 50 us to 10 s. For `elastic`.

Nobody else wants the GPU, so the limit is all that holds the program back. A kernel of 10 s outlasts what a limit allows at once many times: it
goes in parts, or, where its image has no PTX, it is taken off the GPU and brought back. softgpu runs PTX alone.

What the daemon charged, for use and for holding, is the part of the GPU that the program had. Beside it stands what the program got done, over
what it gets done without the limit in the same repetition: by that the charge can be checked. Kernels do a given work: one that watches the
clock would go on while it is off the GPU.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from benchmarks.devices import compute_capability
from benchmarks.document import Document, Record, records
from benchmarks.errors import ProgramFailedError
from benchmarks.experiment import Reporter
from benchmarks.experiments.shares import LENGTHS
from benchmarks.guests import Session, Setting, open_session
from benchmarks.ratios import estimate
from benchmarks.sheet import Sheet
from benchmarks.stretch import Outcome, run_together
from benchmarks.style import due
from benchmarks.workloads import Workload, endless, spin
from scheduler.elastic import Elastic

LIMIT = 30
"""Percent of the GPU."""
LONG_S = 10.0
EDGE_FRACTION = 0.25
"""Of the window, for each of its edges."""
KIND = "one limit"


@dataclass(frozen=True)
class Length:
    """How long kernels are. `is_large`: of 10 s, and in parts where they have PTX."""

    kernel_us: float
    nr_queued: int = 0
    has_ptx: bool = True

    @property
    def is_large(self) -> bool:
        return self.nr_queued == 0

    def workload(self, device: str) -> Workload:
        """The program."""
        if not self.is_large:
            return spin(self.kernel_us, self.nr_queued, is_work=True)
        capability = None if self.has_ptx else compute_capability()
        return endless(self.kernel_us / 1e6, LENGTHS[device].nr_rounds, capability)


WAYS: Mapping[str, Length] = {
    "50 us": Length(50, 256),
    "5 ms": Length(5000, 16),
    "10 s, in parts": Length(1e6 * LONG_S),
    "10 s, withdrawn": Length(1e6 * LONG_S, has_ptx=False),
}


def ways_on(device: str) -> dict[str, Length]:
    """Those that can be measured there."""
    return {name: way for name, way in WAYS.items() if way.has_ptx or device == "cuda"}


def measured(setting: Setting, seconds: float, repetition: int, tell: Reporter) -> Iterator[Record]:
    """One record for each length. One whose program fails costs itself alone."""
    setting = replace(setting, daemon={**LENGTHS[setting.device].daemon, **setting.daemon})
    for name, way in ways_on(setting.device).items():
        what = f"a limit, kernels of {name}"
        tell.doing(what)
        with tell.tolerating(what):
            workload = way.workload(setting.device)
            with open_session(Elastic.name, setting, (1,), [workload.path()]) as session:
                free, held_back = (_run(session, workload, limit, seconds) for limit in (100, LIMIT))
            if free.throughput <= 0:
                raise ProgramFailedError(f"nothing was done in a window of {seconds:g} s")
            if way.is_large and bool(held_back.nr_parts) != way.has_ptx:
                raise ProgramFailedError(f"its launches went {'whole' if way.has_ptx else 'in parts'}")
            counted_s = seconds * (1 - EDGE_FRACTION)
            yield {
                "kind": KIND,
                "way": name,
                "limit": LIMIT,
                "repetition": repetition,
                "window_s": seconds,
                "used": 100 * (held_back.charged_s or 0.0) / counted_s,
                "held": 100 * (held_back.held_s or 0.0) / counted_s,
                "done": 100 * held_back.throughput / free.throughput,
            }


def _run(session: Session, workload: Workload, limit: int, seconds: float) -> Outcome:
    """Without a limit until the program has measured how much of its work a kernel is to do."""
    session.set_bounds(0, 0, 100)
    edge_s = seconds * EDGE_FRACTION
    [outcome] = run_together(session, [workload], seconds, edge_s, lambda: session.set_bounds(0, 0, limit))
    return outcome


def charged(record: Record) -> float:
    """Percent of the GPU that was charged: a limit counts what is held as used."""
    return float(record["used"] + record["held"])


def by_way(document: Document) -> dict[str, list[Record]]:
    """All repetitions of each length."""
    found: dict[str, list[Record]] = {}
    for record in records(document, KIND):
        found.setdefault(record["way"], []).append(record)
    return found


def farthest(document: Document) -> dict[str, float]:
    """By length, the most points that the program was off its limit."""
    return {
        way: max(abs(charged(record) - record["limit"]) for record in runs) for way, runs in by_way(document).items()
    }


def sheet(document: Document) -> list[Sheet]:
    """Each length."""
    off = farthest(document)
    rows = tuple(
        (
            f"kernels of {way}",
            f"{runs[0]['limit']}",
            estimate([charged(record) for record in runs]).text(2),
            f"{off[way]:.2f}",
            estimate([record["done"] for record in runs]).text(1),
        )
        for way, runs in by_way(document).items()
    )
    columns = ("program", "limit %", "charged %", "farthest off", "done %")
    notes = ("Charged: for use and for holding. Done: of what the program gets done without the limit.",)
    return [Sheet("One program alone under a limit", columns, rows, notes)] if rows else []


def finding(document: Document) -> str:
    """How well the limit holds."""
    return f"A program alone has its limit of {LIMIT} % to within {max(farthest(document).values()):.1f} % of the GPU"


def draw(axes: Any, document: Document) -> None:
    """What was charged and what was done, the limit as a line."""
    found = by_way(document)
    for name, mark, value in (("charged", "o", charged), ("done, of without the limit", "s", _done)):
        axes.plot(list(found), [fmean(map(value, runs)) for runs in found.values()], mark, label=name)
    due(axes, "the limit", y=LIMIT)
    axes.set(ylabel="% of the GPU", ylim=(0, 2 * LIMIT))
    axes.legend()
    axes.set_title("One program alone, kernels of one length")


def _done(record: Record) -> float:
    return float(record["done"])
