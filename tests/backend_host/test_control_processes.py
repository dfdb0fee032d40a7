"""The hand-over of the grant among processes that may die at any moment."""

import mmap
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from backend_host.device.control import MAX_WORKERS, ControlPage

ROOT = Path(__file__).resolve().parents[2]
GRANT = 1
"""Of a page's objects, the one that begins with the grant word."""
# What the players write on the board.
ROUNDS = MAX_WORKERS
VIOLATIONS = ROUNDS + 4 * MAX_WORKERS
LOST = VIOLATIONS + 4


class Play:
    """Players in processes of their own, and the daemon's part in this one."""

    def __init__(self, control: ControlPage, nr_vgpus: int, nr_each: int, nr_rounds: int) -> None:
        self.control, self.nr_rounds = control, nr_rounds
        self.board_fd = os.memfd_create("board")
        os.ftruncate(self.board_fd, 4096)
        self.board = mmap.mmap(self.board_fd, 4096)
        vgpus = [control.vgpu_take() for _ in range(nr_vgpus)]
        self.vgpu_of = {control.worker_take(): vgpu for vgpu in vgpus for _ in range(nr_each)}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, slot: int, seed: int) -> None:
        vgpu = self.vgpu_of[slot]
        player = ROOT / "tests" / "backend_host" / "grant_player.py"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self.control.for_worker(vgpu, slot) as page:
            numbers = (self.board_fd, vgpu, slot, self.nr_rounds, seed, *page)
            command = [sys.executable, str(player), *map(str, numbers)]
            process = subprocess.Popen(command, env=environment, pass_fds=[self.board_fd, *page])
        self.control.worker_assign(slot, process.pid, vgpu, 0)
        self.processes[slot] = process

    def kill(self, slot: int) -> None:
        process = self.processes.pop(slot)
        process.kill()
        process.wait()
        self.board[slot] = 0
        self.control.repair(slot)

    def number(self, offset: int) -> int:
        return int.from_bytes(self.board[offset : offset + 4], "little")

    def nr_done(self) -> int:
        return sum(self.number(ROUNDS + 4 * slot) for slot in self.vgpu_of)

    def daemon(self, seen: int) -> int:
        """One step of the daemon: whoever waited longest is next."""
        seen = self.control.wait_bell(0.05, seen)
        for place, waiting in enumerate(self.control.backlogged()):
            self.control.set_standing(waiting.vgpu, float(place), 0.0, charged_ns=0)
        return seen

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.board.close()
        os.close(self.board_fd)


@pytest.mark.parametrize("sequence", [0, 0xFFFF_FFF0], ids=["start", "wrap"])
def test_holders_exclude_each_other_and_no_wakeup_is_lost(control: ControlPage, sequence: int) -> None:
    with mmap.mmap(control.objects[GRANT], 0) as page:
        page[4:8] = sequence.to_bytes(4, "little")
    play = Play(control, 3, 2, 300)
    for slot in play.vgpu_of:
        play.start(slot, slot)
    seen = control.bell()
    while any(process.poll() is None for process in play.processes.values()):
        seen = play.daemon(seen)
    assert all(process.returncode == 0 for process in play.processes.values())
    assert play.nr_done() == 6 * 300
    assert (play.number(VIOLATIONS), play.number(LOST)) == (0, 0)
    assert control.holder().vgpu is None
    assert control.backlogged() == []
    assert sum(reading.nr_grants for reading in control.vgpus()) > 3
    play.close()


def test_workers_killed_anywhere_stop_nobody(control: ControlPage) -> None:
    play = Play(control, 3, 2, 1_000_000)
    choice = random.Random(20)
    for slot in play.vgpu_of:
        play.start(slot, slot)
    seen, nr_kills, next_kill = control.bell(), 0, 50
    while nr_kills < 40:
        seen = play.daemon(seen)
        if play.nr_done() >= next_kill:
            victim = choice.choice(sorted(play.processes))
            play.kill(victim)
            play.start(victim, 100 + nr_kills)
            nr_kills += 1
            next_kill = play.nr_done() + choice.randrange(100)
    for slot in sorted(play.processes):
        play.kill(slot)
    assert (play.number(VIOLATIONS), play.number(LOST)) == (0, 0)
    assert control.holder().vgpu is None
    assert control.backlogged() == []
    play.close()
