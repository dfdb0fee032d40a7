"""`make attacks MODEL_HOURS=1`: hours of model time beside workers that write random bytes into all that they map, in minutes.

One process plays two neighbours of weights 1 and 2, a worker that was taken over, and the daemon, step by step over one page, by a clock of
its own (model_time.c). A step is 2 ms, the neighbours always want the device and charge what they use. The attacker writes 1 to 64 random bytes
at a time, after pauses of 2 ms to 10 s, into the grant, into its own vGPU's, and now and then into its account, which costs it its worker. Then
another worker is taken over. What neighbours are due is what they got in a tenth of the time before, without an attack.
Wrong when: what matters is how threads and processes of the daemon meet. `make attacks` has those.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import mmap
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from backend_host.worker._worker import ffi, lib

from backend_host.config import PACKAGE_ROOT
from backend_host.device.apart import Apart
from backend_host.device.auditor import Auditor
from backend_host.device.control import ControlPage
from backend_host.entitlement import Entitlement
from backend_host.grants import GrantKeeper
from scheduler.fair import FairQueuing

STEP_NS = 2_000_000
LOOK_STEPS = 10
"""Between two looks of the auditor: 20 ms."""
KEEPER_STEPS = 15
"""The keeper looks each 30 ms while the same ones want the device."""
SLICE_NS = 6_000_000
WEIGHTS = (1, 2)
"""Of the neighbours; the attacker's is 1."""
YARD_DIVISOR = 10
LEAST = 0.8
"""What each neighbour gets at least of what it is due."""
NS_PER_HOUR = 3_600_000_000_000
WAITING, RUNNING = 1, 3
OWN_GRANT, GRANT_FRONT = -11_584, 192
"""Where a vGPU's own grant lies in its object, from the end; what matters of a grant lies at its front."""


class Worker:
    """With its own view of the page, as a process has it."""

    def __init__(self, page: ControlPage) -> None:
        self.vgpu, self.slot = page.vgpu_take(), page.worker_take()
        page.worker_assign(self.slot, os.getpid(), self.vgpu, 0)
        with page.for_worker(self.vgpu, self.slot) as lent:
            self.view = ControlPage.open(lent, self.vgpu)
            self.grant, self.own = mmap.mmap(lent[1], 0), mmap.mmap(lent[3 + self.vgpu], 0)
        self.grantee = ffi.new("struct fgw_grantee *")
        assert lib.fgw_grantee_attach(self.grantee, self.view.page, self.vgpu, self.slot)
        self.turn_ns = self.last_ns = self.most_ns = 0
        """Its turns together, when the last one was, and the longest time without."""

    def step(self, now_ns: int) -> None:
        """What it did since the last one, and what it does next."""
        lib.fgw_grant_follow(self.grantee)
        if self.grantee.is_user:
            lib.fgw_grant_charge(self.grantee, now_ns - STEP_NS, now_ns)
            self.turn_ns += STEP_NS
            self.most_ns, self.last_ns = max(self.most_ns, now_ns - self.last_ns), now_ns
            if lib.fgw_grant_left_ns(self.grantee, now_ns) == 0 and not lib.fgw_grant_renew(self.grantee, now_ns):
                lib.fgw_grant_close(self.grantee)
                lib.fgw_grant_leave(self.grantee, True, now_ns)
        else:
            lib.fgw_grant_nudge(self.grantee, now_ns)
            lib.fgw_grant_enter(self.grantee, now_ns)
        lib.fgw_grant_set_running(self.grantee, self.grantee.is_user)
        lib.fgw_grant_show_phase(self.grantee, RUNNING if self.grantee.is_user else WAITING)

    def close(self, page: ControlPage) -> None:
        self.view.close()
        self.grant.close()
        self.own.close()
        page.worker_free(self.slot)
        page.vgpu_free(self.vgpu)


class Attacker(Worker):
    """Writes random bytes, and takes its turns as others do until it is ended."""

    def __init__(self, page: ControlPage, choice: random.Random) -> None:
        super().__init__(page)
        self.choice, self.next_ns = choice, 0

    def attack(self, now_ns: int) -> None:
        if now_ns < self.next_ns:
            return
        self.next_ns = now_ns + self.choice.choice((STEP_NS, 20 * STEP_NS, 5000 * STEP_NS))
        what = self.choice.random()
        if what < 0.8:
            self._write(self.grant, 0, len(self.grant))
        elif what < 0.97:
            self._write(self.own, len(self.own) + OWN_GRANT, -OWN_GRANT)
        else:
            self._write(self.own, 0, 64)

    def _write(self, memory: mmap.mmap, start: int, nbytes: int) -> None:
        nr = self.choice.randrange(1, 65)
        place = start + self.choice.randrange(max(1, min(nbytes, self.choice.choice((GRANT_FRONT, nbytes))) - nr))
        memory[place : place + nr] = self.choice.randbytes(nr)


class Model:
    """All of it."""

    def __init__(self, seed: int) -> None:
        self.choice = random.Random(seed)
        self.page = ControlPage.create(SLICE_NS)
        self.keeper = GrantKeeper(self.page, FairQueuing())
        self.blamed: list[int] = []
        self.nr_attackers = 0
        self.neighbours = [Worker(self.page) for _ in WEIGHTS]
        for neighbour, weight in zip(self.neighbours, WEIGHTS, strict=True):
            self.keeper.join(neighbour.vgpu, Entitlement(weight))
        self.attacker = self._take_over()
        self.apart = Apart(self.page, lambda vgpu, _: self.blamed.append(vgpu))
        self.auditor = Auditor(
            self.page, lambda vgpu, _: self.blamed.append(vgpu), self.keeper.owe, self.apart.alarm, is_preemptive=False
        )

    def _take_over(self) -> Attacker:
        attacker = Attacker(self.page, self.choice)
        self.keeper.join(attacker.vgpu, Entitlement(1))
        self.nr_attackers += 1
        return attacker

    def _replace(self) -> None:
        """As the daemon does with one that is blamed."""
        self.keeper.leave(self.attacker.vgpu)
        self.attacker.close(self.page)
        self.attacker = self._take_over()
        self.blamed.clear()

    def run(self, nr_steps: int, advance: Callable[[int], None], *, is_attacked: bool) -> list[int]:
        """Gives the turns of each neighbour together, in ns. RuntimeError when one is blamed."""
        for neighbour in self.neighbours:
            neighbour.turn_ns, neighbour.most_ns, neighbour.last_ns = 0, 0, time.monotonic_ns()
        for nr in range(nr_steps):
            advance(STEP_NS)
            now_ns = time.monotonic_ns()
            for worker in (*self.neighbours, self.attacker):
                worker.step(now_ns)
                self.apart.look(now_ns)  # which looks twenty times in a step
            if is_attacked:
                self.attacker.attack(now_ns)
            if nr % KEEPER_STEPS == 0:
                self.keeper.step(now_ns)
            if nr % LOOK_STEPS == 0:
                self.auditor.look()
            if set(self.blamed) - {self.attacker.vgpu}:
                raise RuntimeError(f"a neighbour is blamed, after {nr} steps")
            if self.blamed:
                self._replace()
        return [neighbour.turn_ns for neighbour in self.neighbours]


def model_time(folder: Path) -> Path:
    """The clock, built."""
    built = folder / "model_time.so"
    source = Path(__file__).with_name("model_time.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", built, source], check=True)
    return built


def main(arguments: Sequence[str] | None = None) -> int:
    """0: no neighbour was blamed, and each got four fifths of what it was due at least."""
    parser = argparse.ArgumentParser(prog="make attacks MODEL_HOURS=1", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="of model time (1)")
    parser.add_argument("--seed", type=int, default=29)
    chosen = parser.parse_args(arguments)
    if "LD_PRELOAD" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "LD_PRELOAD": str(model_time(Path(folder)))}
            command = [sys.executable, "-m", "tests.endurance.attack_model", *(arguments or sys.argv[1:])]
            return subprocess.run(command, env=environment, cwd=PACKAGE_ROOT, check=False).returncode
    logging.getLogger("fairgv").setLevel(logging.ERROR)
    clock = ctypes.CDLL(os.environ["LD_PRELOAD"])
    clock.model_time_pass.argtypes = [ctypes.c_uint64]
    model = Model(chosen.seed)
    nr_steps = int(chosen.hours * NS_PER_HOUR) // STEP_NS
    due = model.run(nr_steps // YARD_DIVISOR, clock.model_time_pass, is_attacked=False)
    got = model.run(nr_steps, clock.model_time_pass, is_attacked=True)
    shares = [turn_ns / each_ns / YARD_DIVISOR for turn_ns, each_ns in zip(got, due, strict=True)]
    print(
        f"{chosen.hours:g} hours, seed {chosen.seed}: {model.nr_attackers - 1} attackers were ended, vGPUs were apart"
        f" {model.apart.nr_times} times, {model.auditor.nr_mended} words were mended.\nNeighbours got"
        f" {' and '.join(f'{share:.3f}' for share in shares)} of what they were due, and waited"
        f" {max(neighbour.most_ns for neighbour in model.neighbours) / 1e6:.0f} ms at most."
    )
    return 0 if min(shares) > LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
