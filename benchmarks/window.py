"""All guests at once, counted in one window: each works before it and after it, so that all disturb each other throughout."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.errors import ProgramFailedError
from benchmarks.guests import Account, Session
from benchmarks.guests.session import left_s
from benchmarks.workloads import Workload, parse_report, throughput

START_LIMIT_S = 180.0
"""A program that has not ended its first round by then, with its compilation, will not."""
END_LIMIT_S = 120.0

SETTLE_PART = 1 / 8
"""Of the window: so long all run before it begins."""


@dataclass(frozen=True)
class Outcome:
    """What one guest did in the window: `throughput` in its program's unit; what the daemon charged, and turns, None natively."""

    throughput: float
    report: dict[str, Any]
    charged_s: float | None
    nr_grants: int | None
    nr_launches: int | None


def run_together(session: Session, workloads: Sequence[Workload], window_s: float) -> tuple[Outcome, ...]:
    """One outcome for each workload, which is run in the guest of the same number. ProgramFailedError."""
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
        # What a program used before the others came is made up for before the window, not in it.
        begin_s = time.monotonic() + session.lead_s + window_s * SETTLE_PART
        for child in running:
            child.tell(f"{left_s(begin_s):.6f} {window_s:.6f}")
        before = _accounts_at(session, begin_s)
        after = _accounts_at(session, begin_s + window_s)
        time.sleep(
            left_s(begin_s + window_s + session.lead_s / 2)
        )  # guests may have begun later than they were told to
        for child in running:
            child.tell("end")
        outputs = [
            child.finish(END_LIMIT_S).checked(workload.program)
            for child, workload in zip(running, workloads, strict=True)
        ]
    return tuple(
        _outcome(output, before[index : index + 1], after[index : index + 1]) for index, output in enumerate(outputs)
    )


def _accounts_at(session: Session, at_s: float) -> tuple[Account, ...]:
    time.sleep(left_s(at_s))
    return session.accounts()


def _outcome(output: str, before: Sequence[Account], after: Sequence[Account]) -> Outcome:
    report = parse_report(output)
    if not before:
        return Outcome(throughput(report), report, None, None, None)
    charged_s = (after[0].used_ns - before[0].used_ns) / 1e9
    turns, launches = after[0].nr_grants - before[0].nr_grants, after[0].nr_launches - before[0].nr_launches
    return Outcome(throughput(report), report, charged_s, turns, launches)
