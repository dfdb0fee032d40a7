"""Who has the GPU from moment to moment: three guests at weights 1:2:3, a fourth that comes after a third of the time, and a weight that is
changed after the second third.

All keep a queue of kernels. What each guest was charged is read from the daemon again and again; between two looks, that over the time between
them is the part of the GPU that it had. Beside it stands what it is entitled to: its weight over those of all that work.

Wrong when guests, workers and the device's threads have no core each. Between looks a guest has more or less by up to a slice: with long
slices look less often.
"""

import argparse
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.document import Document, Record, records
from benchmarks.errors import NotMeasurableError, ProgramFailedError
from benchmarks.experiment import Experiment, Reporter, positive, setting
from benchmarks.guests import Account, Running, Session, open_session
from benchmarks.guests.session import left_s
from benchmarks.sheet import Sheet
from benchmarks.stretch import END_LIMIT_S, START_LIMIT_S
from benchmarks.style import head
from benchmarks.systems import OURS
from benchmarks.workloads import spin

Floats = NDArray[np.float64]
WEIGHTS = (1, 2, 3)
NEWCOMER = 4
CHANGED = 6
"""The first one's at the end. With these no two of the guests are entitled to the same at any time."""
WORKLOAD = spin(500, 256)
PERIOD_S = 0.25
LEAD_S = 2.0
"""From the last one's first kernel to the beginning."""
SETTLE_S = 1.0
"""After a change, before what each one gets is counted for the table."""
HOW_TO_READ = f"Lines: what each guest has. Dashed: what it is entitled to. Within: means, without {SETTLE_S:g} s after each change."
STRETCH = "0 0.01 0"
"""A program that is told a stretch works on until it is told to end, whenever its stretch ends."""


class Accounted(Protocol):
    """What a watch needs of a session."""

    def accounts(self) -> tuple[Account, ...]:
        """Of all its guests, in their order."""


class Watch:
    """Looks at the accounts of all guests each so many seconds, in a thread of its own, while the block runs."""

    def __init__(self, session: Accounted, period_s: float) -> None:
        self._session, self._period_s = session, period_s
        self._is_over, self._pool = threading.Event(), ThreadPoolExecutor(1)
        self.begin_s = time.monotonic()
        self.samples: list[Record] = []

    def __enter__(self) -> Self:
        self._looking = self._pool.submit(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        """Raises what a look raised."""
        self._is_over.set()
        self._pool.shutdown()
        self._looking.result()

    def now_s(self) -> float:
        """Since the beginning."""
        return round(time.monotonic() - self.begin_s, 4)

    def _look(self) -> None:
        for number in itertools.count():
            if self._is_over.wait(left_s(self.begin_s + number * self._period_s)):
                return
            accounts = self._session.accounts()
            used_s = [round((account.used_ns + account.held_ns) / 1e9, 6) for account in accounts]
            self.samples.append({"at_s": self.now_s(), "used_s": used_s})


@dataclass(frozen=True)
class Phase:
    """From one change to the next: the weights of those that work, by the guest's number."""

    begin_s: float
    end_s: float
    weights: Mapping[int, int]

    @property
    def entitled(self) -> dict[int, float]:
        """The part of the GPU that is each one's."""
        return {guest: weight / sum(self.weights.values()) for guest, weight in self.weights.items()}


def phases(record: Record) -> list[Phase]:
    """Of one run, in their order."""
    begins = sorted({change["at_s"] for change in record["changes"]})
    found, weights = [], dict[int, int]()
    for begin_s, end_s in itertools.pairwise([*begins, record["seconds"]]):
        weights |= {change["guest"]: change["weight"] for change in record["changes"] if change["at_s"] == begin_s}
        found.append(Phase(begin_s, end_s, dict(weights)))
    return found


def shares(record: Record) -> tuple[Floats, Floats]:
    """When the daemon was looked at, and the part of the GPU that each guest had from one look to the next: (looks - 1, guests)."""
    at_s = np.array([sample["at_s"] for sample in record["samples"]])
    used_s = np.array([sample["used_s"] for sample in record["samples"]])
    return at_s, np.diff(used_s, axis=0) / np.diff(at_s)[:, None]


def mean_share(record: Record, phase: Phase, guest: int) -> float:
    """The part of the GPU that a guest had in one phase, once it had settled."""
    begin_s = phase.begin_s + min(SETTLE_S, (phase.end_s - phase.begin_s) / 4)
    at_s = [sample["at_s"] for sample in record["samples"]]
    used_s = np.interp([begin_s, phase.end_s], at_s, [sample["used_s"][guest] for sample in record["samples"]])
    return float(np.diff(used_s)[0] / (phase.end_s - begin_s))


def name_of(guest: int) -> str:
    """As people are told of it."""
    return "ABCDEFGH"[guest]


class SharesOverTime(Experiment):
    """`fairgv-bench shares-over-time`."""

    name = "shares-over-time"
    summary = "who has the GPU from moment to moment: a guest that comes, a weight that changes"
    guest_kinds = ("process", "vm")
    seconds = 24.0
    repetitions = 1

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """How often to look."""
        parser.add_argument(
            "--period", type=positive, default=PERIOD_S, metavar="S", help="between two looks (default %(default)g)"
        )

    def nr_records(self, options: argparse.Namespace) -> int:
        """One for each repetition."""
        return int(options.repetitions)

    def measure(self, options: argparse.Namespace, reporter: Reporter) -> Iterator[Record]:
        """Guests are opened before the first one works."""
        for _ in range(options.repetitions):
            reporter.doing("three guests, a fourth, another weight")
            with (
                reporter.tolerating("shares over time"),
                open_session(OURS, setting(options), (*WEIGHTS, NEWCOMER), [WORKLOAD.path()]) as session,
            ):
                yield _watched(session, options.seconds, options.period)

    def sheets(self, document: Document) -> list[Sheet]:
        """What each guest gets and is entitled to, from one change to the next."""
        rows = []
        for record in records(document, "shares over time")[-1:]:
            for phase in phases(record):
                for guest, entitled in phase.entitled.items():
                    weight, share = phase.weights[guest], mean_share(record, phase, guest)
                    figures = (f"{100 * entitled:.1f}", f"{100 * share:.1f}", f"{share / entitled:.3f}")
                    rows.append((f"{phase.begin_s:.1f} to {phase.end_s:.1f}", name_of(guest), f"{weight}", *figures))
        columns = ("s", "guest", "weight", "entitled to %", "has %", "of its due")
        notes = (f"Parts of the GPU's time, without the first {SETTLE_S:g} s after each change.",)
        return [Sheet("Shares over time", columns, tuple(rows), notes)] if rows else []

    def plot(self, document: Document, figure: Any) -> None:
        """Shares as lines, what each guest is entitled to dashed."""
        found = records(document, "shares over time")
        if not found:
            raise NotMeasurableError("nothing was measured")
        axes = figure.subplots()
        _draw(axes, found[-1])
        axes.set_ylabel("share of the GPU's time, %")
        head(figure, _title(found[-1]), document, HOW_TO_READ)


def _watched(session: Session, seconds: float, period_s: float) -> Record:
    """One run of so many seconds, and as long as the newcomer takes to start. ProgramFailedError."""
    with contextlib.ExitStack() as stack:
        running = [_started(session, guest, stack) for guest in range(len(WEIGHTS))]
        for program in running:
            _await_work(program)
        time.sleep(LEAD_S)
        with Watch(session, period_s) as watch:
            changes = [{"at_s": 0.0, "guest": guest, "weight": weight} for guest, weight in enumerate(WEIGHTS)]
            time.sleep(left_s(watch.begin_s + seconds / 3))
            running.append(_started(session, len(WEIGHTS), stack))
            _await_work(running[-1])
            changes.append({"at_s": watch.now_s(), "guest": len(WEIGHTS), "weight": NEWCOMER})
            time.sleep(seconds / 3)
            session.set_weight(0, CHANGED)
            changes.append({"at_s": watch.now_s(), "guest": 0, "weight": CHANGED})
            time.sleep(seconds / 3)
            passed_s = watch.now_s()
        for program in running:
            program.tell("end")
        for program in running:
            program.finish(END_LIMIT_S).checked(WORKLOAD.program)
    return {
        "kind": "shares over time",
        "workload": WORKLOAD.label,
        "seconds": passed_s,
        "changes": changes,
        "samples": watch.samples,
    }


def _started(session: Session, guest: int, stack: contextlib.ExitStack) -> Running:
    program = session.start(guest, WORKLOAD.path(), [*WORKLOAD.arguments, "--together"])
    stack.callback(program.stop)
    return program


def _await_work(program: Running) -> None:
    """Until its first kernel has ended."""
    if (line := program.read_line(time.monotonic() + START_LIMIT_S)) != "ready":
        raise ProgramFailedError(f"{WORKLOAD.program} said: {line}")
    program.tell(STRETCH)


def _title(record: Record) -> str:
    """How far off the worst mean of a phase is."""
    off = max(
        abs(mean_share(record, phase, guest) - entitled)
        for phase in phases(record)
        for guest, entitled in phase.entitled.items()
    )
    return f"Shares follow weights as a guest comes and a weight changes, to within {100 * off:.1f} % of the GPU"


def _draw(axes: Any, record: Record) -> None:
    """Shares as lines with their names, what each guest is entitled to dashed, and what changed when."""
    found = phases(record)
    at_s, parts = shares(record)
    for guest in found[-1].weights:
        is_there = at_s[:-1] >= next(phase.begin_s for phase in found if guest in phase.weights)
        middles = (at_s[1:] + at_s[:-1]) / 2
        axes.plot(middles[is_there], 100 * parts[is_there, guest], color=f"C{guest}", linewidth=1.6)
        had = 100 * mean_share(record, found[-1], guest)
        place = (record["seconds"], 100 * found[-1].entitled[guest])
        _label(axes, f"{name_of(guest)} {had:.0f} %", place, (8, 0), guest, va="center")
    for before, phase in zip(({}, *(phase.weights for phase in found)), found, strict=False):
        for guest, entitled in phase.entitled.items():
            axes.plot([phase.begin_s, phase.end_s], [100 * entitled] * 2, "--", color=f"C{guest}", linewidth=1.2)
            if text := _news(guest, before, phase.weights):
                _label(axes, text, (phase.begin_s, 100 * entitled), (6, 8), guest)
        if before:
            axes.axvline(phase.begin_s, color=axes.xaxis.label.get_color(), linewidth=0.8)
    most = max(entitled for phase in found for entitled in phase.entitled.values())
    axes.set(xlabel="seconds", xlim=(0, record["seconds"]), ylim=(0, 120 * most))
    axes.set_xticks(np.arange(0, record["seconds"] + 1e-9, max(1, round(record["seconds"] / 6))))


def _news(guest: int, before: Mapping[int, int], weights: Mapping[int, int]) -> str:
    """What begins for a guest when weights become these; empty when nothing does."""
    name, weight = name_of(guest), weights[guest]
    if guest in before:
        return f"{name}, weight {before[guest]} → {weight}" if weight != before[guest] else ""
    return f"{name} comes, weight {weight}" if before else f"{name}, weight {weight}"


def _label(
    axes: Any, text: str, place: tuple[float, float], offset: tuple[int, int], guest: int, va: str = "baseline"
) -> None:
    """In the guest's colour, so many points beside a place, on a piece of the page that keeps it readable on lines."""
    page = {"facecolor": axes.get_facecolor(), "edgecolor": "none", "alpha": 0.7, "pad": 1}
    style = {"color": f"C{guest}", "va": va, "weight": "bold", "bbox": page}
    axes.annotate(text, place, offset, textcoords="offset points", annotation_clip=False, **style)
