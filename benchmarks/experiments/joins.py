"""Programs with a request and a limit that join and leave one after the other, as in figure 13 of the Gemini paper. For `elastic`.

Each program runs kernels that last a given time, and notes again and again how many have ended. The kernels that ended in a stretch, times
their length, over the length of the stretch, are its share of the GPU. Beside it stand the share that `allotments` gives, its goal, and what
the daemon charged.
"""

import contextlib
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.document import Document, Record, records
from benchmarks.errors import ProgramFailedError
from benchmarks.experiments.shares_over_time import STRETCH, Watch, name_of
from benchmarks.guests import Running, Session
from benchmarks.guests.session import left_s
from benchmarks.ratios import estimate
from benchmarks.sheet import Sheet
from benchmarks.stretch import END_LIMIT_S, START_LIMIT_S
from benchmarks.style import GREY
from benchmarks.workloads import parse_report, spin
from scheduler.elastic import Claim, allotments

Floats = NDArray[np.float64]

BOUNDS = ((30, 60), (40, 60), (30, 40))
"""Request and limit of A, B and C, percent of the GPU; all have the same weight."""
EVENTS = (("joins", 0), ("joins", 1), ("joins", 2), ("leaves", 1), ("leaves", 0))
"""What begins each stretch, and whose it is. Without its last one, Gemini's."""
GEMINI = "Gemini's figure 13: A 60; A, B 50, 50; A, B, C 30, 40, 30; A, C 60, 40."
KERNEL_US = 1000.0
WORKLOAD = spin(KERNEL_US, 32)
"""Long beside what is between two kernels; a program that is told to end has few of them left."""
LOOK_MS = 50.0
PERIOD_S = 0.1
"""Between two looks at what the daemon charged."""
SETTLE_S = 1.0
"""After a change, before what is had counts."""
WINDOW_S = 1.0
STEP_S = 0.1
"""From one window to the next."""
NEAR_POINTS = 1.0
KIND = "join and leave"
DASH = 3
"""Points of a dashed line; the gap is as long as the others' dashes."""


def goals_of(bounds: Mapping[int, tuple[int, int]]) -> dict[int, float]:
    """The share that each one gets while all have work, in percent, from its request and its limit in percent. Weights are 1."""
    claims = {
        guest: Claim(Fraction(1), Fraction(request, 100), Fraction(limit, 100))
        for guest, (request, limit) in bounds.items()
    }
    return {guest: float(100 * share) for guest, share in allotments(claims).items()}


@dataclass(frozen=True)
class Stretch:
    """From one change to the next: `event` begins it, `goals` are percent, by the number of each one that is there."""

    event: str
    begin_s: float
    end_s: float
    goals: Mapping[int, float]

    @property
    def settled_s(self) -> float:
        """From when on what is had counts; at least half of a stretch does."""
        return self.begin_s + min(SETTLE_S, (self.end_s - self.begin_s) / 2)

    @property
    def windows_s(self) -> list[float]:
        """When its windows begin; a stretch that is shorter than one has none."""
        nr = int((self.end_s - self.begin_s - WINDOW_S) / STEP_S + 1e-9) + 1
        return [self.begin_s + number * STEP_S for number in range(max(0, nr))]


def stretches(record: Record) -> list[Stretch]:
    """Of one run, in their order."""
    return [
        Stretch(each["event"], each["begin_s"], each["end_s"], {guest: goal for guest, goal in each["goals"]})
        for each in record["stretches"]
    ]


def share(record: Record, guest: int, begin_s: float, end_s: float) -> float:
    """Percent of the time between that one's ended kernels lasted."""
    at_s, nr_ended = np.array(record["programs"][guest]["looks"], float).T
    grown = np.diff(np.interp([begin_s, end_s], at_s, nr_ended))[0]
    return float(100 * grown * record["kernel_us"] / 1e6 / (end_s - begin_s))


def charged(record: Record, guest: int, begin_s: float, end_s: float) -> float:
    """Percent of the time between that the daemon charged to one."""
    at_s = [sample["at_s"] for sample in record["samples"]]
    used_s = [sample["used_s"][guest] for sample in record["samples"]]
    return float(100 * np.diff(np.interp([begin_s, end_s], at_s, used_s))[0] / (end_s - begin_s))


def part(record: Record, stretch: Stretch, guest: int) -> float:
    """The part that one's charges are of all charges of a stretch that has settled, times the sum of its goals: how the GPU is shared, on a
    machine that has no time for all guests, too."""
    paid = {each: charged(record, each, stretch.settled_s, stretch.end_s) for each in stretch.goals}
    return paid[guest] * sum(stretch.goals.values()) / sum(paid.values())


def deviation(record: Record, stretch: Stretch, guest: int) -> float:
    """Points that the share in a stretch, once it has settled, is above the goal; negative below it."""
    return share(record, guest, stretch.settled_s, stretch.end_s) - stretch.goals[guest]


def _windows(record: Record, stretch: Stretch, guest: int) -> list[tuple[float, float]]:
    """When each window begins, and how many points its share is above the goal."""
    goal = stretch.goals[guest]
    return [(begin_s, share(record, guest, begin_s, begin_s + WINDOW_S) - goal) for begin_s in stretch.windows_s]


def farthest(record: Record, stretch: Stretch, guest: int) -> float | None:
    """The most points that the share is off its goal in a window of a settled stretch; None: there is no such window."""
    found = [abs(off) for begin_s, off in _windows(record, stretch, guest) if begin_s >= stretch.settled_s - 1e-9]
    return max(found, default=None)


def settling_s(record: Record, stretch: Stretch, guest: int) -> float | None:
    """From the change to the first window in which the share is within a point of its goal; None: in none it is."""
    near = (begin_s for begin_s, off in _windows(record, stretch, guest) if abs(off) <= NEAR_POINTS)
    return next((begin_s - stretch.begin_s for begin_s in near), None)


class Programs:
    """Those that work now, by their numbers, and what those that have ended noted: `looks`, on the watch's clock."""

    def __init__(self, session: Session, watch: Watch, stack: contextlib.ExitStack) -> None:
        self._session, self._watch, self._stack = session, watch, stack
        self._running: dict[int, Running] = {}
        self._told_s: dict[int, float] = {}
        self.looks: dict[int, list[tuple[float, int]]] = {}

    @property
    def present(self) -> list[int]:
        """Their numbers, in order."""
        return sorted(self._running)

    def join(self, guest: int) -> float:
        """When one has begun to work. ProgramFailedError."""
        words = [*WORKLOAD.arguments, "--together", "--look-ms", f"{LOOK_MS:g}"]
        program = self._session.start(guest, WORKLOAD.path(), words)
        self._stack.callback(program.stop)
        if (line := program.read_line(time.monotonic() + START_LIMIT_S)) != "ready":
            raise ProgramFailedError(f"{WORKLOAD.program} said: {line}")
        program.tell(STRETCH)
        self._running[guest], self._told_s[guest] = program, self._watch.now_s()
        return self._told_s[guest]

    def leave(self, guest: int) -> float:
        """When one was told to end; it has ended. ProgramFailedError."""
        program = self._running.pop(guest)
        program.tell("end")
        told_s = self._watch.now_s()
        report = parse_report(program.finish(END_LIMIT_S).checked(WORKLOAD.program))
        self.looks[guest] = [(round(self._told_s[guest] + at_s, 4), nr_ended) for at_s, nr_ended in report["looks"]]
        return told_s


def watched(session: Session, seconds: float) -> Record:
    """One run, each of its stretches of so many seconds at least. ProgramFailedError."""
    found: list[Record] = []
    for guest, (request, limit) in enumerate(BOUNDS):
        session.set_bounds(guest, request, limit)
    with contextlib.ExitStack() as stack, Watch(session, PERIOD_S) as watch:
        programs = Programs(session, watch, stack)
        for what, guest in EVENTS:
            begin_s = programs.join(guest) if what == "joins" else programs.leave(guest)
            goals = goals_of({present: BOUNDS[present] for present in programs.present})
            time.sleep(left_s(watch.begin_s + begin_s + seconds))
            event, end_s = f"{name_of(guest)} {what}", watch.now_s()
            found.append({"event": event, "begin_s": begin_s, "end_s": end_s, "goals": list(goals.items())})
        time.sleep(PERIOD_S)
        for guest in programs.present:
            programs.leave(guest)
    return {
        "kind": KIND,
        "workload": WORKLOAD.label,
        "kernel_us": KERNEL_US,
        "programs": [
            {"name": name_of(guest), "request": request, "limit": limit, "looks": programs.looks[guest]}
            for guest, (request, limit) in enumerate(BOUNDS)
        ],
        "stretches": found,
        "samples": watch.samples,
    }


def by_stretch(document: Document) -> dict[tuple[str, int], list[tuple[Record, Stretch]]]:
    """All repetitions of each stretch and each program in it."""
    found: dict[tuple[str, int], list[tuple[Record, Stretch]]] = {}
    for record in records(document, KIND):
        for stretch in stretches(record):
            for guest in stretch.goals:
                found.setdefault((stretch.event, guest), []).append((record, stretch))
    return found


def sheet(document: Document) -> list[Sheet]:
    """Each program in each stretch; means of all repetitions, and the worst of them."""
    rows = []
    for (event, guest), runs in by_stretch(document).items():
        program, goal = runs[0][0]["programs"][guest], runs[0][1].goals[guest]
        had = [share(record, guest, stretch.settled_s, stretch.end_s) for record, stretch in runs]
        paid = [charged(record, guest, stretch.settled_s, stretch.end_s) for record, stretch in runs]
        off = max((deviation(*run, guest) for run in runs), key=abs)
        most = [farthest(*run, guest) for run in runs]
        parts = [part(*run, guest) for run in runs]
        figures = (
            f"{goal:.1f}",
            estimate(had).text(1),
            f"{off:+.1f}",
            _worst(most, "-"),
            estimate(paid).text(1),
            estimate(parts).text(1),
        )
        settled = _worst([settling_s(*run, guest) for run in runs], "not")
        bounds = f"{program['request']} to {program['limit']}"
        rows.append((event, program["name"], bounds, *figures, settled if runs[0][1].windows_s else "-"))
    columns = (
        "from",
        "program",
        "bounds %",
        "goal %",
        "has %",
        "off",
        "farthest",
        "charged %",
        "of all",
        "near after s",
    )
    notes = (
        f"Shares are kernels that ended, times {KERNEL_US:g} us. Has and off, in points, are of a stretch without its first {SETTLE_S:g} s;",
        f"farthest is the most points off in {WINDOW_S:g} s of it. Near: the first {WINDOW_S:g} s within {NEAR_POINTS:g} point of the goal.",
        "Of all: what was charged, as the part of what all were charged, times the sum of their goals.",
        GEMINI,
    )
    return [Sheet("Programs that join and leave", columns, tuple(rows), notes)] if rows else []


def _worst(values: list[float | None], absent: str) -> str:
    """The greatest, or that one of them is absent."""
    known = [value for value in values if value is not None]
    return f"{max(known):.1f}" if known and len(known) == len(values) else absent


def finding(document: Document) -> str:
    """How near shares come to what requests and limits promise."""
    off = max(abs(deviation(*run, guest)) for (_, guest), runs in by_stretch(document).items() for run in runs)
    return f"As programs join and leave, each has its share to within {off:.1f} % of the GPU"


def draw(axes: Any, document: Document) -> None:
    """Shares of the last run as lines, goals dashed, what joins or leaves at the top."""
    record = records(document, KIND)[-1]
    found = stretches(record)
    first_s, last_s = found[0].begin_s, found[-1].end_s
    for guest, program in enumerate(record["programs"]):
        mine = [stretch for stretch in found if guest in stretch.goals]
        edges_s = np.arange(mine[0].begin_s, mine[-1].end_s + 1e-9, WINDOW_S / 2)
        shares = [share(record, guest, *pair) for pair in itertools.pairwise(edges_s)]
        label = f"{program['name']} ({program['request']}, {program['limit']})"
        axes.plot((edges_s[1:] + edges_s[:-1]) / 2 - first_s, shares, color=f"C{guest}", linewidth=1.6, label=label)
        for stretch in mine:
            span = [stretch.begin_s - first_s, stretch.end_s - first_s]
            dashes = (DASH * guest, (DASH, DASH * (len(BOUNDS) - 1)))  # those of the same goal lie beside each other
            axes.plot(span, [stretch.goals[guest]] * 2, linestyle=dashes, color=f"C{guest}", linewidth=1.4)
    for stretch in found:
        axes.axvline(stretch.begin_s - first_s, color=GREY, linewidth=0.8)
        axes.annotate(stretch.event, (stretch.begin_s - first_s, 96), (4, 0), textcoords="offset points", va="top")
    axes.set(xlabel="seconds", ylabel="share of the GPU, %", xlim=(0, last_s - first_s), ylim=(0, 100))
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(BOUNDS))
    axes.set_title("Dashed: goals; (request, limit)")
