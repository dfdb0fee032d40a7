"""The live part of `fairgv-bench energy`: programs on two GPUs, and what those take meanwhile.

Each case has a daemon of its own. Programs are those of `paging`; what they did is counted by the daemon, launch by launch.

Wrong when a daemon keeps contexts where no vGPU is: with `compact` it keeps none.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from backend_host.entitlement import Entitlement
from benchmarks.build import build
from benchmarks.document import Record
from benchmarks.errors import ProgramFailedError
from benchmarks.guests import Account, Running, Session, Setting, open_session
from benchmarks.joules import Reading
from benchmarks.systems import OURS
from benchmarks.workloads import parse_report
from scheduler.balance import COMPACT, OFF

NR_GPUS = 2
REGION_BYTES = 64 << 20
START_S = 60.0
PLACED_S = 30.0
"""Most of the time until programs are where they are to be."""
SETTLE_S = 3.0
"""From then until a stretch begins: clocks and contexts that go have gone."""
MOST_S = 3600.0
END_S = 60.0


@dataclass(frozen=True)
class Load:
    """Of `paging`: its memory, percent of it that changes, kernels of a request, ms of the pause behind it."""

    mib: int = 1024
    changed: int = 10
    passes: int = 20
    pause_ms: float = 28.0

    def arguments(self, *, pauses: bool) -> list[str]:
        """Of the program."""
        return [str(self.mib), str(self.changed), str(self.passes), f"{self.pause_ms if pauses else 0:g}"]


@dataclass(frozen=True)
class Case:
    """So many programs under one mode of balancing. Those that do not work have contexts and memory, and wait."""

    name: str
    nr: int
    mode: str = OFF
    works: bool = True
    pauses: bool = True


CASES = EMPTY, IDLE, BUSY, ONE, APART, JOINED = (
    Case("no contexts", 0),
    Case("contexts, no work", NR_GPUS, works=False),
    Case("work without pauses", NR_GPUS, pauses=False),
    Case("one light program", 1, COMPACT),
    Case("two light programs, off", NR_GPUS),
    Case("two light programs, compact", NR_GPUS, COMPACT),
)


class Meter(Protocol):
    """What tells the energy of both GPUs."""

    def read(self) -> Reading:
        """Now."""


def measure_case(case: Case, load: Load, plain: Setting, meter: Meter, seconds: float) -> Record:
    """One stretch. ProgramFailedError where programs are not where the case wants them, or compute what is wrong."""
    if not case.nr:
        time.sleep(SETTLE_S)
        return _stretch(meter, seconds, None)
    daemon = {"vgpu": Entitlement(), "devices": ("0", "1"), "balance": case.mode, "fast_moves": True}
    asked = replace(plain, region_bytes=REGION_BYTES, daemon={**plain.daemon, **daemon})
    with open_session(OURS, asked, (1,) * case.nr) as session, contextlib.ExitStack() as stack:
        programs = []
        for index in range(case.nr):
            programs.append(session.start(index, build("paging"), load.arguments(pauses=case.pauses)))
            stack.callback(programs[-1].stop)
        for running in programs:
            if (line := running.read_line(time.monotonic() + START_S)) != "ready":
                raise ProgramFailedError(f"paging said {line!r}")
        if case.works:
            for running in programs:
                running.tell(f"{MOST_S:g}")
        placed_s = _placed(session, 1 if case.mode == COMPACT else case.nr)
        time.sleep(SETTLE_S)
        found = _stretch(meter, seconds, session)
        for running in programs:
            _end(running)
    return {**found, "placed_s": placed_s}


def _stretch(meter: Meter, seconds: float, session: Session | None) -> Record:
    """Joules of each GPU; where each vGPU is, and the part of the time for which it used its GPU; passes of all."""

    def accounts() -> Sequence[Account]:
        return session.accounts() if session else ()

    before, first = meter.read(), accounts()
    time.sleep(max(0.0, before.at_s + seconds - time.monotonic()))
    after, last = meter.read(), accounts()
    took_s = after.at_s - before.at_s
    both = list(zip(first, last, strict=True))
    return {
        "seconds": took_s,
        "joules": [end - begin for begin, end in zip(before.joules, after.joules, strict=True)],
        "gpus": [end.gpu_number for _, end in both],
        "used": [(end.used_ns - begin.used_ns) / 1e9 / took_s for begin, end in both],
        "passes": sum(end.nr_launches - begin.nr_launches for begin, end in both),
    }


def _placed(session: Session, nr_gpus: int) -> float:
    """Once vGPUs are on so many; after how long."""
    begin_s = time.monotonic()
    while len(on := {account.gpu_number for account in session.accounts()}) != nr_gpus:
        if time.monotonic() > begin_s + PLACED_S:
            raise ProgramFailedError(f"programs are on {len(on)} GPUs, and not on {nr_gpus}, after {PLACED_S:g} s")
        time.sleep(0.1)
    return time.monotonic() - begin_s


def _end(running: Running) -> None:
    """One that was told to work is told that it is enough, one that was not works for no time."""
    running.tell("0")
    if parse_report(running.finish(END_S).checked("paging"))["wrong"]:
        raise ProgramFailedError("the program's memory was not what it should be")
