"""A worker that its guest took over, for real: a process with what its vGPU's worker is lent, beside real workers that go on.

It runs for a few seconds of attack each; FAIRGV_ATTACK_S=60 in the environment makes it a minute.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend_host.device.apart import Apart
from backend_host.device.auditor import Auditor
from backend_host.device.control import ControlPage
from backend_host.entitlement import PLAIN
from backend_host.grants import GrantKeeper
from scheduler.fair import FairQueuing
from tests.backend_host.test_control_processes import ROUNDS, Play
from tests.endurance.tenant import EVIDENT, GO, GO_FROM, HOW

ROOT = Path(__file__).resolve().parents[2]
ATTACK_S = float(os.environ.get("FAIRGV_ATTACK_S", "2"))


class Attack:
    """The process, which is ended when it is blamed."""

    def __init__(self, control: ControlPage, how: str) -> None:
        self.control, self.vgpu, self.ending = control, control.vgpu_take(), threading.Lock()
        slot = control.worker_take()
        with control.for_worker(self.vgpu, slot) as page, tempfile.TemporaryFile() as board:
            board.truncate(mmap.PAGESIZE)
            os.pwrite(board.fileno(), bytes([GO_FROM[0]]), GO)
            command = [sys.executable, "-m", "tests.endurance.tenant", how]
            command += map(str, (board.fileno(), 0, board.fileno(), self.vgpu, slot, *page))
            fds = [board.fileno(), *page]
            self.process = subprocess.Popen(command, cwd=ROOT, pass_fds=fds, stdout=subprocess.PIPE)
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
    apart = Apart(control, end)
    auditor = Auditor(control, end, keeper.owe, apart.alarm, is_preemptive=False)
    threads = (keeper, apart, auditor)
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in reversed(threads):
            thread.stop()
        for ending in ends:
            ending.join()


@pytest.mark.parametrize("how", [how for how in HOW if how != "honest"])
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
        assert blamed or how not in EVIDENT
