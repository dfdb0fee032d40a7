"""A process that plays a worker of one vGPU beside attacks: an honest one, or one that its guest took over.

Arguments: how, the board, its place there, the device, vGPU, slot, descriptors of the page. The device is a file that is locked for each piece
of work, which takes 0.5 ms: so it serves one after the other, and whoever submits without a turn takes it from the others. The board has a
count of ns that the device worked for each place, and whether it is time: honest ones begin at 1, others at 2.
"""

from __future__ import annotations

import fcntl
import mmap
import random
import sys
import time
from collections.abc import Callable, Sequence

from backend_host.worker._worker import ffi, lib

from backend_host.device.control import ControlPage

WORK_S = 0.0005
NAP_NS = 2_000_000
"""After which a worker that waits nudges."""
GO, GO_FROM = 4000, (2, 1)
OUT, WAITING, READY, RUNNING = range(4)
"""Phases."""
REST_S = 0.005
"""Between what a taken-over worker writes, unless it is a fast one."""


class Tenant:
    """What a worker is lent, and how it works."""

    def __init__(self, board_fd: int, place: int, device: int, vgpu: int, slot: int, page: Sequence[int]) -> None:
        self.board, self.place, self.device, self.vgpu = mmap.mmap(board_fd, mmap.PAGESIZE), place, device, vgpu
        self.control, self.grantee = ControlPage.open(page, vgpu), ffi.new("struct fgw_grantee *")
        while not lib.fgw_grantee_attach(self.grantee, self.control.page, vgpu, slot):  # until it is assigned
            time.sleep(0.001)
        self.grant, self.own = mmap.mmap(page[1], 0), mmap.mmap(page[3 + vgpu], 0)
        self.choice = random.Random(slot)

    def work(self) -> None:
        """One piece, behind those of others that are there already."""
        fcntl.flock(self.device, fcntl.LOCK_EX)
        begun_ns = time.monotonic_ns()
        time.sleep(WORK_S)
        took_ns = time.monotonic_ns() - begun_ns
        fcntl.flock(self.device, fcntl.LOCK_UN)
        at = 8 * self.place
        self.board[at : at + 8] = (int.from_bytes(self.board[at : at + 8], "little") + took_ns).to_bytes(8, "little")

    def enter(self) -> None:
        """Comes back with its turn."""
        while True:
            lib.fgw_grant_follow(self.grantee)
            bell = lib.fgw_grant_bell(self.grantee)
            if lib.fgw_grant_enter(self.grantee, lib.fgw_clock_ns()):
                lib.fgw_grant_show_phase(self.grantee, READY)
                return
            lib.fgw_grant_show_phase(self.grantee, WAITING)
            lib.fgw_grant_sleep(self.grantee, bell, ffi.NULL, NAP_NS)
            lib.fgw_grant_nudge(self.grantee, lib.fgw_clock_ns())

    def is_over(self) -> bool:
        """Whether its turn is."""
        now_ns = lib.fgw_clock_ns()
        if lib.fgw_grant_left_ns(self.grantee, now_ns) != 0 or not lib.fgw_grant_others_wait(self.grantee):
            return self.control.holder().vgpu != self.vgpu
        return not lib.fgw_grant_renew(self.grantee, now_ns)

    def leave(self) -> None:
        lib.fgw_grant_close(self.grantee)
        lib.fgw_grant_leave(self.grantee, True, lib.fgw_clock_ns())
        lib.fgw_grant_show_phase(self.grantee, WAITING)

    def take_turns(self, is_charged: bool = True) -> None:
        """For ever, as an honest worker does, but for charges."""
        while True:
            self.enter()
            is_over = False
            while not is_over:
                begun_ns = lib.fgw_clock_ns()
                lib.fgw_grant_show_phase(self.grantee, RUNNING)
                lib.fgw_grant_set_running(self.grantee, True)
                self.work()
                if is_charged:
                    lib.fgw_grant_charge(self.grantee, begun_ns, lib.fgw_clock_ns())
                lib.fgw_grant_set_running(self.grantee, False)
                lib.fgw_grant_show_phase(self.grantee, READY)
                lib.fgw_grant_follow(self.grantee)
                is_over = self.is_over()
            self.leave()

    # What a worker does that was taken over

    def charge_nothing(self) -> None:
        self.take_turns(is_charged=False)

    def forge_charges(self) -> None:
        """Now nothing, now more than there was time for."""
        while True:
            self.own[0:16] = self.choice.choice((bytes(16), bytes([1]) * 6 + bytes(10)))
            time.sleep(REST_S)

    def keep(self) -> None:
        """Its turn, for ever, and says that it uses it."""
        while True:
            self.enter()
            lib.fgw_grant_show_phase(self.grantee, RUNNING)
            while self.control.holder().vgpu == self.vgpu:
                self.work()
            lib.fgw_grant_leave(self.grantee, True, lib.fgw_clock_ns())

    def take(self, is_charged: bool = False) -> None:
        """Turns out of turn."""
        while True:
            if self.grant[0:2] != (self.vgpu + 1).to_bytes(2, "little"):
                self.grant[0:2] = (self.vgpu + 1).to_bytes(2, "little")
                self.grant[2] &= 0xFE
            lib.fgw_grant_show_phase(self.grantee, RUNNING)
            begun_ns = lib.fgw_clock_ns()
            self.work()
            if is_charged:
                lib.fgw_grant_charge(self.grantee, begun_ns, lib.fgw_clock_ns())

    def take_and_pay(self) -> None:
        self.take(is_charged=True)

    def count_unused(self) -> None:
        """Puts all others back, and takes turns."""
        seats, at = range(192, 192 + 64 * 32, 32), 4
        while True:
            for vgpu, seat in enumerate(seats):
                if vgpu != self.vgpu:
                    count = int.from_bytes(self.grant[seat + at : seat + at + 4], "little") + 10
                    self.grant[seat + at : seat + at + 4] = count.to_bytes(4, "little")
            time.sleep(REST_S)

    def clear_bits(self) -> None:
        while True:
            self.grant[16:48] = bytes(32)
            self.grant[64:96] = bytes(32)
            time.sleep(REST_S)

    def scribble(self) -> None:
        """Random bytes into all that it maps."""
        while True:
            for memory in (self.grant, self.own):
                place = self.choice.randrange(
                    self.choice.choice((64, len(memory) - 64))
                )  # what matters lies at the front
                memory[place : place + 64] = self.choice.randbytes(64)
            time.sleep(REST_S)

    def scribble_grant(self, rest_s: float = REST_S) -> None:
        """Random bytes into what all share, which leave no evidence."""
        noise = self.choice.randbytes(65536)
        while True:
            for at in range(0, len(noise), 8):
                place = noise[at] * 184 // 255
                self.grant[place : place + 8] = noise[at : at + 8]
                if rest_s:
                    time.sleep(rest_s)

    def scribble_fast(self) -> None:
        """The same without a rest: many thousand times between two looks."""
        self.scribble_grant(0)


HOW: dict[str, Callable[[Tenant], None]] = {
    "honest": Tenant.take_turns,
    "charges itself nothing": Tenant.charge_nothing,
    "forges its charges": Tenant.forge_charges,
    "keeps its turn": Tenant.keep,
    "takes turns": Tenant.take,
    "takes turns, and pays": Tenant.take_and_pay,
    "counts unused grants": Tenant.count_unused,
    "clears bits": Tenant.clear_bits,
    "random bytes": Tenant.scribble,
    "random grant": Tenant.scribble_grant,
    "random grant, fast": Tenant.scribble_fast,
}


EVIDENT = ("forges its charges", "random bytes")
"""Attacks that leave evidence at once: what only their vGPU can have written."""


if __name__ == "__main__":
    numbers = list(map(int, sys.argv[2:]))
    board_fd, place, device, vgpu, slot, *page = numbers
    tenant = Tenant(board_fd, place, device, vgpu, slot, page)
    print("at it", flush=True)
    while tenant.board[GO] < GO_FROM[sys.argv[1] == "honest"]:
        time.sleep(0.001)
    HOW[sys.argv[1]](tenant)
