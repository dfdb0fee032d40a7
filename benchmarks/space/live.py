"""Pairs of programs in a space of a real daemon: each a guest of its own (programs/pair.cu), and what the daemon says of their space."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backend_host.config import Config
from backend_host.ipc import Connection
from benchmarks.errors import ProgramFailedError
from benchmarks.guests import Setting
from benchmarks.guests.open import daemon_config
from benchmarks.guests.process import ProcessSession, daemon
from benchmarks.space.build import build
from benchmarks.systems import OURS

CRITICAL, BEST_EFFORT = 0, 1
"""Which guest is which."""
START_LIMIT_S, ANSWER_LIMIT_S, END_LIMIT_S = 120.0, 30.0, 30.0
LOOK_S = 0.05
"""Between looks at what the daemon says."""
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
LARGE: Mapping[str, tuple[str, ...]] = {"cuda": ("--large",), "soft": ()}
_ALL_PERCENT = 100
"""Of the GPU out of turn: what is measured is the split, and not the bound."""

_NEVER = 1.001
"""A target that no split holds, so that the search stays where it begins."""

Entitlement = Mapping[str, object]


def critical(target: float, space: str) -> Entitlement:
    """Of a vGPU whose rounds may take so many times as long as with all of the GPU."""
    return {"class": "critical", "qos": f"{target:g}", "most": _ALL_PERCENT, "space": space}


def best_effort(space: str, weight: int = 1) -> Entitlement:
    """Of one that has what is left."""
    return {"class": "best-effort", "space": space, "weight": weight}


@contextlib.contextmanager
def serving(settings: Setting) -> Iterator[Config]:
    """A daemon that keeps spaces, for the block."""
    with_spaces = replace(settings, daemon={**settings.daemon, "space": "mps"})
    with daemon_config(OURS, with_spaces) as config, daemon(config, None):
        yield config


@contextlib.contextmanager
def members(config: Config, space: str, entitlements: Sequence[Entitlement]) -> Iterator[ProcessSession]:
    """vGPUs of that daemon for the block, one for each entitlement. At its end their space is gone."""
    named = {f"{space}-{index}": entitlement for index, entitlement in enumerate(entitlements)}
    with contextlib.ExitStack() as stack:
        yield ProcessSession(config, named, None, stack)
    deadline_s = time.monotonic() + END_LIMIT_S
    while any(each["name"] == space for each in status(config)["spaces"]):
        if time.monotonic() > deadline_s:
            raise ProgramFailedError(f"the space {space} does not end")
        time.sleep(LOOK_S)


def status(config: Config) -> Mapping[str, Any]:
    """All that the daemon says."""
    with Connection(config.socket_path) as connection:
        return connection.ask("status")


def space_of(config: Config, name: str) -> Mapping[str, Any]:
    """What it says of that space. ProgramFailedError where there is none."""
    for space in status(config)["spaces"]:
        if space["name"] == name:
            return dict(space)
    raise ProgramFailedError(f"there is no space {name}")


def give_all_up(config: Config, space: str) -> None:
    """From now on each round of the critical vGPU, of `members`, has all of the GPU. ProgramFailedError where it has not."""
    with Connection(config.socket_path) as connection:
        connection.ask("set", name=f"{space}-{CRITICAL}", qos=f"{_NEVER:g}")
    deadline_s = time.monotonic() + ANSWER_LIMIT_S
    while (told := space_of(config, space))["progress"] != 0:
        if time.monotonic() > deadline_s:
            raise ProgramFailedError(f"best effort keeps {told['progress']} of the GPU in the space {space}")
        time.sleep(LOOK_S)


@dataclass(frozen=True)
class Settled:
    """How the search came to an end, or that it did not within the time. `split`: of the multiprocessors that there are."""

    is_settled: bool
    settle_s: float
    split: tuple[int, int]


def settled(config: Config, space: str, limit_s: float) -> Settled:
    """Waits for the search of that space, no longer than that."""
    begun_s = time.monotonic()
    while True:
        told, passed_s = space_of(config, space), time.monotonic() - begun_s
        if told["is_settled"] or passed_s > limit_s:
            n, k = told["split"] or (0, 0)
            return Settled(told["is_settled"], round(passed_s, 3), (n, k))
        time.sleep(LOOK_S)


@dataclass(frozen=True)
class Worked:
    """What one program did in a stretch: times of rounds, or a number of blocks."""

    seconds: float
    times_us: tuple[float, ...] = ()
    blocks: int = 0

    @property
    def rate(self) -> float:
        """Blocks per second."""
        return self.blocks / self.seconds


class Program:
    """One that rests until it is told to work."""

    def __init__(self, session: ProcessSession, index: int, words: Sequence[str], path: Path | None = None) -> None:
        """`words` are those of programs/pair.cu, or of a program that obeys as that does."""
        self._name = " ".join(words[:2])
        self.running = session.start(index, path or build("pair"), words)

    def ready(self) -> None:
        """Waits until it has begun."""
        if (line := self.running.read_line(time.monotonic() + START_LIMIT_S)) != "ready":
            raise ProgramFailedError(f"{self._name} said: {line}")

    def work(self) -> None:
        """Goes on."""
        self.running.tell("work")

    def look(self) -> Worked:
        """What it did since it was told to work, or looked at."""
        return self._ask("look")

    def rest(self) -> Worked:
        """The same, and it stops."""
        return self._ask("rest")

    def end(self) -> None:
        """ProgramFailedError where what it computed is wrong."""
        self.running.finish(END_LIMIT_S).checked(self._name)

    def _ask(self, word: str) -> Worked:
        self.running.tell(word)
        found = json.loads(self.running.read_line(time.monotonic() + ANSWER_LIMIT_S))
        return Worked(found["seconds"], tuple(found.get("times_us", ())), found.get("blocks", 0))


@contextlib.contextmanager
def program(session: ProcessSession, index: int, words: Sequence[str], path: Path | None = None) -> Iterator[Program]:
    """One for the block, ready; where the block ends in order it has computed right by then."""
    started = Program(session, index, words, path)
    try:
        started.ready()
        yield started
        started.end()
    finally:
        started.running.stop()


def worked_alone(program: Program, seconds: float) -> Worked:
    """While the others rest."""
    program.work()
    time.sleep(seconds)
    return program.rest()


def percentiles(ordered: Sequence[float]) -> dict[str, float]:
    """The least that so large a part does not exceed."""
    return {name: ordered[max(0, -int(-part * len(ordered) // 1) - 1)] for name, part in PERCENTILES.items()}
