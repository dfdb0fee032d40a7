"""`make attacks`: what neighbours get beside a worker that its guest took over, with the auditor and without.

Two neighbours of weights 1 and 2 and an attacker of weight 1 are processes with what a worker is lent (tenant.py), over one page, with the
daemon's keeper, auditor and relay. Each attack lasts for SECONDS, without the auditor and with it. What is shown is which part each neighbour
had of the device's time, over the part that it was due: a quarter and a half. Once the attacker has been ended they are due a third more.
Wrong when: the machine is so loaded that who is handed the device gets no CPU: what honest ones lose so is in the first row.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from backend_host.config import PACKAGE_ROOT
from backend_host.device.apart import Apart
from backend_host.device.auditor import Auditor
from backend_host.device.control import ControlPage
from backend_host.entitlement import Entitlement
from backend_host.grants import GrantKeeper
from scheduler.fair import FairQueuing
from tests.endurance.tenant import GO, HOW

WEIGHTS = (1, 2, 1)
"""The last one's is the attacker."""
SLICE_NS = 6_000_000
HONEST = "honest"
LEAST = 0.4
"""Of what it is due each neighbour gets: one that submits without a turn takes half of such a device, whatever becomes of its turns."""
WARM_S = 1.0
"""The attack begins when honest ones have taken turns for so long."""


@dataclass
class Outcome:
    """Of one run: which part of the time the device worked for each, whom the auditor blamed and after how long, how often they went apart."""

    how: str
    is_audited: bool
    parts: list[float]
    blamed: dict[int, tuple[str, float]] = field(default_factory=dict)
    nr_apart: int = 0
    attacker: int = 0
    begun_s: float = 0.0

    def shares(self) -> list[float]:
        """What each neighbour got of what it was due."""
        return [part * sum(WEIGHTS) / weight for part, weight in zip(self.parts[:-1], WEIGHTS[:-1], strict=True)]


class Scene:
    """The page, the three processes, and what they got done."""

    def __init__(self, how: str) -> None:
        self.page = ControlPage.create(SLICE_NS)
        self.board_fd = os.memfd_create("board")
        os.ftruncate(self.board_fd, mmap.PAGESIZE)
        self.board = mmap.mmap(self.board_fd, mmap.PAGESIZE)
        self.ending = threading.Lock()
        self.vgpus = [self.page.vgpu_take() for _ in WEIGHTS]
        self.slots = [self.page.worker_take() for _ in WEIGHTS]
        self.processes = [
            self._start(how if place == len(WEIGHTS) - 1 else HONEST, place) for place in range(len(WEIGHTS))
        ]

    def _start(self, how: str, place: int) -> subprocess.Popen[bytes]:
        vgpu, slot = self.vgpus[place], self.slots[place]
        device = os.open(f"/proc/self/fd/{self.board_fd}", os.O_RDWR)  # a description of its own: flock goes by those
        with self.page.for_worker(vgpu, slot) as lent, contextlib.closing(os.fdopen(device)):
            numbers = (self.board_fd, place, device, vgpu, slot, *lent)
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.endurance.tenant", how, *map(str, numbers)],
                cwd=PACKAGE_ROOT,
                pass_fds=[self.board_fd, device, *lent],
                stdout=subprocess.PIPE,
            )
        self.page.worker_assign(slot, process.pid, vgpu, 0)
        return process

    def await_all(self) -> None:
        for process in self.processes:
            assert process.stdout is not None
            with process.stdout as output:
                output.readline()

    def done(self) -> list[int]:
        return [int.from_bytes(self.board[8 * place : 8 * place + 8], "little") for place in range(len(WEIGHTS))]

    def parts(self, seconds: float) -> list[float]:
        """Which part of so long from now on the device works for each."""
        before, begun_ns = self.done(), time.monotonic_ns()
        time.sleep(seconds)
        passed_ns = time.monotonic_ns() - begun_ns
        return [(now - then) / passed_ns for now, then in zip(self.done(), before, strict=True)]

    def end(self, place: int) -> None:
        """Safe to repeat, from two threads, too."""
        with self.ending:
            self.processes[place].kill()
            self.processes[place].wait()
            self.page.repair(self.slots[place])

    def close(self) -> None:
        for place in range(len(WEIGHTS)):
            self.end(place)
        self.page.close()
        self.board.close()
        os.close(self.board_fd)


@contextlib.contextmanager
def daemon(scene: Scene, outcome: Outcome) -> Iterator[None]:
    """Keeper, and auditor and relay if there are to be."""
    ends: list[threading.Thread] = []

    def end(vgpu: int, why: str) -> None:
        outcome.blamed[vgpu] = (why, time.monotonic() - outcome.begun_s)
        ends.append(threading.Thread(target=scene.end, args=(scene.vgpus.index(vgpu),)))
        ends[-1].start()

    keeper = GrantKeeper(scene.page, FairQueuing())
    for vgpu, weight in zip(scene.vgpus, WEIGHTS, strict=True):
        keeper.join(vgpu, Entitlement(weight))
    apart = Apart(scene.page, end)
    auditor = Auditor(scene.page, end, keeper.owe, apart.alarm, is_preemptive=False)
    threads = (keeper, apart, auditor) if outcome.is_audited else (keeper,)
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in reversed(threads):
            thread.stop()
        outcome.nr_apart = apart.nr_times
        for ending in ends:
            ending.join()


def attack(how: str, seconds: float, *, is_audited: bool) -> Outcome:
    """One run."""
    with contextlib.closing(Scene(how)) as scene:
        outcome = Outcome(how, is_audited, [], attacker=scene.vgpus[-1])
        scene.await_all()
        with daemon(scene, outcome):
            scene.board[GO] = 1
            time.sleep(WARM_S)
            scene.board[GO] = 2
            outcome.begun_s = time.monotonic()
            outcome.parts = scene.parts(seconds)
    return outcome


def shown(outcomes: Sequence[Outcome]) -> Table:
    """What neighbours got of what they were due."""
    table = Table("the attacker", "auditor", "weight 1", "weight 2", "apart", "known after", "why")
    for outcome in outcomes:
        why, after_s = outcome.blamed.get(outcome.attacker, ("", 0.0))
        shares = [f"{share:.2f}" for share in outcome.shares()]
        cells = [str(outcome.nr_apart), f"{after_s:.2f} s" if why else "-", why] if outcome.is_audited else ["", "", ""]
        table.add_row(outcome.how, "yes" if outcome.is_audited else "no", *shares, *cells)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """0: nobody was blamed but attackers, and each neighbour of an audited run got LEAST of what it was due."""
    parser = argparse.ArgumentParser(prog="make attacks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run (10)")
    parser.add_argument("--only", choices=sorted(HOW), action="append", help="this attack; may be said again")
    chosen = parser.parse_args(arguments)
    outcomes = [
        attack(how, chosen.seconds, is_audited=audited) for how in chosen.only or HOW for audited in (False, True)
    ]
    Console(width=150).print(shown(outcomes))
    wrong = [outcome for outcome in outcomes if set(outcome.blamed) - {outcome.attacker}]
    poor = [outcome for outcome in outcomes if outcome.is_audited and min(outcome.shares()) < LEAST]
    return 1 if wrong or poor else 0


if __name__ == "__main__":
    sys.exit(main())
