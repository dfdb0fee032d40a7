"""A worker that its guest took over, for real: a process with what its vGPU's worker is lent, beside real workers that go on.

It runs for a few seconds of attack each; FAIRGV_ATTACK_S=60 in the environment makes it a minute.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.device.auditor import Auditor
from backend_host.device.control import ControlPage
from backend_host.entitlement import PLAIN
from backend_host.grants import GrantKeeper
from scheduler.fair import FairQueuing
from tests.backend_host.test_control_processes import ROUNDS, Play

ROOT = Path(__file__).resolve().parents[2]
ATTACK_S = float(os.environ.get("FAIRGV_ATTACK_S", "2"))
ATTACKER = """
import mmap, os, random, sys, time
from backend_host.device.control import ControlPage
from backend_host.worker._worker import ffi, lib

RUNNING, WAITING = 3, 1

how, vgpu, slot, *page = sys.argv[1], *map(int, sys.argv[2:])
choice = random.Random(slot)
control, grantee = ControlPage.open(page, vgpu), ffi.new("struct fgw_grantee *")
while not lib.fgw_grantee_attach(grantee, control.page, vgpu, slot):
    time.sleep(0.001)
grant, own = mmap.mmap(page[1], 0), mmap.mmap(page[3 + vgpu], 0)
print("at it", flush=True)
while True:
    if how == "random bytes":
        for memory in (grant, own):
            place = choice.randrange(choice.choice((64, len(memory) - 64)))  # what matters lies at the front
            memory[place : place + 64] = choice.randbytes(64)
    elif how == "random grant":
        place = choice.randrange(192 - 8)
        grant[place : place + 8] = choice.randbytes(8)
    elif how == "charges":
        own[0:16] = choice.choice((bytes(16), bytes([1]) * 6 + bytes(10)))  # in or out of its turn
        if not lib.fgw_grant_enter(grantee, lib.fgw_clock_ns()):
            lib.fgw_grant_leave(grantee, True, lib.fgw_clock_ns())
        lib.fgw_grant_show_phase(grantee, RUNNING if control.holder().vgpu == vgpu else WAITING)
    elif how == "unpaid turns":
        if not lib.fgw_grant_enter(grantee, lib.fgw_clock_ns()):
            lib.fgw_grant_leave(grantee, True, lib.fgw_clock_ns())
        lib.fgw_grant_show_phase(grantee, RUNNING if control.holder().vgpu == vgpu else WAITING)
    elif how == "turns out of turn":
        grant[0:2] = (vgpu + 1).to_bytes(2, "little")
        grant[2] &= 0xfe
        lib.fgw_grant_show_phase(grantee, RUNNING)
    elif how == "bits":
        grant[16:48] = bytes(32)
        grant[64:96] = bytes(32)
    time.sleep(0.005)
"""


SURE = {"charges", "random bytes"}
"""Attacks that leave evidence at once: what only their vGPU can have written."""


class Attack:
    """The process, which is ended when it is blamed."""

    def __init__(self, control: ControlPage, how: str) -> None:
        self.control, self.vgpu, self.ending = control, control.vgpu_take(), threading.Lock()
        slot = control.worker_take()
        with control.for_worker(self.vgpu, slot) as page:
            command = [sys.executable, "-c", ATTACKER, how, str(self.vgpu), str(slot), *map(str, page)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            self.process = subprocess.Popen(command, env=environment, pass_fds=page, stdout=subprocess.PIPE)
        self.slot = slot
        control.worker_assign(slot, self.process.pid, self.vgpu, 0)
        assert self.process.stdout is not None
        with self.process.stdout as output:
            assert output.readline() == b"at it\n"

    def end(self) -> None:
        """Safe to repeat, from two threads, too."""
        with self.ending:
            self.process.kill()
            self.process.wait()
            self.control.repair(self.slot)


@contextlib.contextmanager
def daemon(control: ControlPage, attack: Attack, blamed: dict[int, str]) -> Iterator[None]:
    """What the daemon does of it: keeper, auditor, and the end of whom it blames."""

    ends: list[threading.Thread] = []

    def end(vgpu: int, why: str) -> None:
        blamed[vgpu] = why
        if vgpu == attack.vgpu:
            ends.append(threading.Thread(target=attack.end))
            ends[-1].start()

    keeper = GrantKeeper(control, FairQueuing())
    for account in control.vgpus():
        keeper.join(account.vgpu, PLAIN)
    auditor = Auditor(control, end, keeper.owe, is_preemptive=False)
    keeper.start()
    auditor.start()
    try:
        yield
    finally:
        auditor.stop()
        keeper.stop()
        for thread in ends:
            thread.join()


@pytest.mark.parametrize(
    "how", ["random grant", "random bytes", "charges", "unpaid turns", "turns out of turn", "bits"]
)
def test_neighbours_go_on(control: ControlPage, how: str) -> None:
    with contextlib.closing(Play(control, 2, 2, 1_000_000)) as play:
        blamed: dict[int, str] = {}
        attack = Attack(control, how)
        for slot in play.vgpu_of:
            play.start(slot, slot)
        with daemon(control, attack, blamed):
            end = time.monotonic() + ATTACK_S
            while time.monotonic() < end:
                before = play.nr_done()
                deadline = time.monotonic() + 30
                while play.nr_done() < before + 100 and time.monotonic() < deadline:
                    time.sleep(0.01)
                assert play.nr_done() >= before + 100, "nobody goes on"
            attack.end()
            rounds = {slot: play.number(ROUNDS + 4 * slot) for slot in play.vgpu_of}
            deadline = time.monotonic() + 30
            while (
                any(play.number(ROUNDS + 4 * slot) == rounds[slot] for slot in rounds) and time.monotonic() < deadline
            ):
                time.sleep(0.01)
            assert all(play.number(ROUNDS + 4 * slot) > rounds[slot] for slot in rounds), "one of them is left behind"
        assert all(process.poll() is None for process in play.processes.values())
        assert set(blamed) <= {attack.vgpu}, blamed
        assert blamed or how not in SURE
