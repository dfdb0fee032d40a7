"""How soon a guest's short kernel has ended beside another guest's blocks: by turns, and in a space.

A kernel with a block on each multiprocessor, of 10 us on a GPU, is launched and waited for, with pauses between. In a space this begins when
the search for the split has settled, or has had its time.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from backend_host.config import Config
from benchmarks.document import Record
from benchmarks.errors import ProgramFailedError
from benchmarks.experiment import Reporter
from benchmarks.guests import Setting
from benchmarks.guests.process import ProcessSession
from benchmarks.space import live
from benchmarks.space.live import BEST_EFFORT, CRITICAL, Entitlement, Program, Worked, percentiles

TURNS, TOGETHER = LABELS = ("FairGV, by turns", "FairGV, in a space")
TARGET = 2.5
"""Rounds of some 60 us vary by half of that themselves."""


@dataclass(frozen=True)
class Size:
    """Times in us, of best effort's blocks, of a critical one and between those; then in seconds."""

    blocks_us: tuple[int, ...]
    kernel_us: int
    pause_us: int
    settle_s: float
    seconds: float


SIZES: Mapping[str, Size] = {
    "cuda": Size((5, 20, 100, 500), kernel_us=10, pause_us=2000, settle_s=4, seconds=1.5),
    "soft": Size((50,), kernel_us=10, pause_us=2000, settle_s=0.2, seconds=0.5),
}


def nr_records(device: str) -> int:
    """Each way alone, and beside blocks of each length."""
    return len(LABELS) * (1 + len(SIZES[device].blocks_us))


def measure(device: str, settings: Setting, reporter: Reporter) -> Iterator[Record]:
    """One way after the other, in one daemon."""
    size = SIZES[device]
    with reporter.tolerating("FairGV"), live.serving(settings) as config:
        for label, space in ((TURNS, ""), (TOGETHER, "start")):
            reporter.doing(label)
            with reporter.tolerating(label), _critical(config, space, size) as (session, critical):
                yield _record(label, 0, live.worked_alone(critical, size.seconds))
                for block_us in size.blocks_us:
                    with reporter.tolerating(f"{label}, blocks of {block_us} us"):
                        yield _beside(label, config, space, session, critical, block_us, size)


@contextlib.contextmanager
def _critical(config: Config, space: str, size: Size) -> Iterator[tuple[ProcessSession, Program]]:
    entitlements: tuple[Entitlement, ...] = ({}, {})
    if space:
        entitlements = (live.critical(TARGET, space), live.best_effort(space))
    words = ("critical", f"spin-{size.kernel_us}", "--pause-us", f"{size.pause_us}")
    with (
        live.members(config, space or "turns", entitlements) as session,
        live.program(session, CRITICAL, words) as critical,
    ):
        yield session, critical


def _beside(
    label: str, config: Config, space: str, session: ProcessSession, critical: Program, block_us: int, size: Size
) -> Record:
    with live.program(session, BEST_EFFORT, ("best-effort", f"spin-{block_us}")) as best_effort:
        alone = live.worked_alone(best_effort, size.seconds)
        best_effort.work()
        critical.work()
        if space:
            live.settled(config, space, size.settle_s)
            critical.look()
            best_effort.look()
        time.sleep(size.seconds)
        return _record(label, block_us, critical.rest(), best_effort.rest().rate / alone.rate)


def _record(label: str, block_us: int, rounds: Worked, kept: float = 1) -> Record:
    if not rounds.times_us:
        raise ProgramFailedError("no kernel ended")
    told = percentiles(sorted(rounds.times_us))
    return {"way": label, "block_us": block_us, "p50_us": told["p50"], "p99_us": told["p99"], "kept": round(kept, 3)}
