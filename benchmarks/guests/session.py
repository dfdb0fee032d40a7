"""What every kind of guest offers to a measurement."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.errors import ProgramFailedError

RUN_LIMIT_S = 300.0


@dataclass(frozen=True)
class Account:
    """One vGPU's, so far: GPU time charged for use, and for holding it without use, turns, launches, parts of large ones, and
    how often a thread of it was boosted. `turn_ns` is how long its turns may last now, `overuse_ns` what they went on beyond their ends while
    others waited, and the bytes are of memory that made room for others', and that came back. `nr_gave_way`: kernels that ended when they were
    asked to, by bounds in ns of how long that took. `gpu_number`: of the Gpu that it is on."""

    used_ns: int
    held_ns: int
    nr_grants: int
    nr_launches: int
    nr_parts: int
    nr_boosts: int
    turn_ns: int = 0
    overuse_ns: int = 0
    swapped_out_bytes: int = 0
    swapped_in_bytes: int = 0
    nr_gave_way: Mapping[str, int] = field(default_factory=dict)
    gpu_number: int = 0


@dataclass(frozen=True)
class Finished:
    """How a program ended. `errors` is empty where a guest does not tell them from the output."""

    output: str
    errors: str
    exit_code: int

    def checked(self, name: str) -> str:
        """The output. ProgramFailedError when the program failed."""
        if self.exit_code != 0:
            said = (self.errors or self.output).strip().splitlines()
            raise ProgramFailedError(f"{name}: exit status {self.exit_code}{f': {said[-1]}' if said else ''}")
        return self.output


@dataclass(frozen=True)
class Moved:
    """A move to another Gpu: how long programs stood still, and how long all took."""

    pause_s: float
    took_s: float


class Running(Protocol):
    """A program of one guest."""

    def read_line(self, deadline_s: float) -> str:
        """The next line it prints; ProgramFailedError when none comes until then, on the monotonic clock, or when it ends."""

    def tell(self, line: str) -> None:
        """A line for its standard input."""

    def finish(self, limit_s: float) -> Finished:
        """Waits for its end; ProgramFailedError when it does not come."""

    def stop(self) -> None:
        """Ends it if it still runs. Safe at any time."""


class Session(Protocol):
    """One guest for each weight, or as many native programs as one likes. `lead_s` is how long before a stretch its guests must know it."""

    lead_s: float

    def start(
        self, index: int, program: Path, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Running:
        """Runs a program in one guest."""

    def accounts(self) -> tuple[Account, ...]:
        """Of the vGPUs, in the order of the guests; natively there is nobody who keeps any."""

    def set_weight(self, index: int, weight: int) -> None:
        """Of one guest, from now on; NotMeasurableError natively, where there are none."""

    def set_bounds(self, index: int, request: float, limit: float) -> None:
        """Percent of the GPU that one guest gets at least and at most, from now on; NotMeasurableError natively, where there are none."""

    def move(self, index: int, gpu: int, mover: str) -> Moved:
        """Moves one guest to another Gpu, by a mover as `fairgv-host migrate` names them. NotMeasurableError where it cannot be, and
        natively."""


class Guests(Protocol):
    """What stays while daemons with other settings serve it, one after the other: booted machines, say."""

    def session(self, **settings: object) -> AbstractContextManager[Session]:
        """A daemon for the block, with these settings (by their names in `Config`) on top."""


def run(
    session: Session,
    index: int,
    program: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    limit_s: float = RUN_LIMIT_S,
) -> Finished:
    """A program from its start to its end."""
    child = session.start(index, program, arguments, environment)
    try:
        return child.finish(limit_s)
    finally:
        child.stop()


def left_s(deadline_s: float) -> float:
    """Seconds until then, on the monotonic clock; not below 0."""
    return max(0.0, deadline_s - time.monotonic())
