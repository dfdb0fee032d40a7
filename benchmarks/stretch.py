"""All guests at once, counted in one stretch: each works before it and after it, so that all disturb each other throughout.

What is done towards both ends of the stretch may count less and less: benchmarks/programs/common.h says how. Guests take turns of the length
of a slice, and one whose turn the stretch cuts off would else seem to have got less.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.errors import ProgramFailedError
from benchmarks.guests import Account, Session
from benchmarks.guests.session import left_s
from benchmarks.workloads import Workload, parse_report, throughput

START_LIMIT_S = 180.0
"""A program that has not ended its first round by then, with its compilation, will not."""
END_LIMIT_S = 120.0

SETTLE_FRACTION = 1 / 8
"""Of the stretch: so long all run before it begins."""

NR_LOOKS = 20
"""At the accounts, in each edge of a stretch."""


@dataclass(frozen=True)
class Outcome:
    """What one guest did in the stretch: `throughput` in its program's unit; what the daemon charged, for use and for holding, and turns.

    None natively. Launches per second and charges per second are those of the stretch that counts; turns are those of the whole; parts of
    large launches those until its end.
    """

    throughput: float
    report: dict[str, Any]
    charged_s: float | None
    held_s: float | None
    nr_grants: int | None
    nr_launches: float | None
    nr_parts: int | None
    turns_ns: tuple[int, ...] = ()
    """How long its turns were to last, in each look at the accounts."""
    overuse_s: float | None = None
    """What its turns went on beyond their ends while others waited, of the stretch that counts."""


def run_together(
    session: Session,
    workloads: Sequence[Workload],
    stretch_s: float,
    edge_s: float = 0.0,
    when_ready: Callable[[], None] = lambda: None,
) -> tuple[Outcome, ...]:
    """One outcome for each workload, which is run in the guest of the same number. `when_ready` is called once all have measured what they
    need to know of the device. ProgramFailedError."""
    with contextlib.ExitStack() as stack:
        running = []
        for index, workload in enumerate(workloads):
            child = session.start(index, workload.path(), [*workload.arguments, "--together"])
            stack.callback(child.stop)
            running.append(child)
        deadline_s = time.monotonic() + START_LIMIT_S
        for child, workload in zip(running, workloads, strict=True):
            if (line := child.read_line(deadline_s)) != "ready":
                raise ProgramFailedError(f"{workload.program} said: {line}")
        when_ready()
        # What a program used before the others came is made up for before the stretch, not in it.
        begin_s = time.monotonic() + session.lead_s + stretch_s * SETTLE_FRACTION
        for child in running:
            child.tell(f"{left_s(begin_s):.6f} {stretch_s:.6f} {edge_s:.6f}")
        before = _looks(session, begin_s, edge_s)
        after = _looks(session, begin_s + stretch_s - edge_s, edge_s)
        time.sleep(
            left_s(begin_s + stretch_s + session.lead_s / 2)
        )  # guests may have begun later than they were told to
        for child in running:
            child.tell("end")
        outputs = [
            child.finish(END_LIMIT_S).checked(workload.program)
            for child, workload in zip(running, workloads, strict=True)
        ]
    return tuple(_outcome(output, before, after, index) for index, output in enumerate(outputs))


def _looks(session: Session, begin_s: float, edge_s: float) -> list[tuple[Account, ...]]:
    """The accounts, again and again from then on, until the edge is over."""
    looks = []
    for number in range(NR_LOOKS if edge_s else 1):
        time.sleep(left_s(begin_s + edge_s * number / NR_LOOKS))
        looks.append(session.accounts())
    return looks


def _outcome(
    output: str, before: Sequence[tuple[Account, ...]], after: Sequence[tuple[Account, ...]], index: int
) -> Outcome:
    report = parse_report(output)
    if not before[0]:
        return Outcome(throughput(report), report, None, None, None, None, None)

    def grown(attribute: str) -> float:
        begun, ended = (fmean(getattr(look[index], attribute) for look in looks) for looks in (before, after))
        return ended - begun

    turns = after[-1][index].nr_grants - before[0][index].nr_grants
    nr_parts = after[-1][index].nr_parts
    return Outcome(
        throughput(report),
        report,
        grown("used_ns") / 1e9,
        grown("held_ns") / 1e9,
        turns,
        grown("nr_launches"),
        nr_parts,
        tuple(look[index].turn_ns for look in (*before, *after)),
        grown("overuse_ns") / 1e9,
    )
