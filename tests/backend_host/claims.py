"""What workers say of themselves, written by hand, as an honest or a taken-over worker of the vGPU writes it: into its own object."""

from __future__ import annotations

import mmap
import time

from backend_host.worker._worker import lib

from backend_host.device.control import ControlPage
from tests.backend_host.grantees import attach

OWN = 3
"""Of a page's objects, the first that is a vGPU's own."""
PHASES = {"out": 0, "waiting": 1, "ready": 2, "running": 3, "idle": 4}
USED, HELD, UNTIL, LIMITED = 0, 8, 16, 32
"""Places in an account."""


class Claimant:
    """A worker of a vGPU of its own, in this process; its phase follows what it does, as a real one's does."""

    def __init__(self, control: ControlPage) -> None:
        self.control, self.vgpu = control, control.vgpu_take()
        self.slot, self.grantee = attach(control, self.vgpu)
        self.memory = mmap.mmap(control.objects[OWN + self.vgpu], 0)

    def write(self, place: int, value: int, nbytes: int = 8) -> None:
        self.memory[place : place + nbytes] = value.to_bytes(nbytes, "little")

    def read(self, place: int) -> int:
        return int.from_bytes(self.memory[place : place + 8], "little")

    def add(self, place: int, value: int) -> None:
        self.write(place, (self.read(place) + value) % (1 << 64))

    def says(self, phase: str) -> None:
        lib.fgw_grant_show_phase(self.grantee, PHASES[phase])

    def enter(self) -> bool:
        is_in = bool(lib.fgw_grant_enter(self.grantee, time.monotonic_ns()))
        self.says("ready" if is_in else "waiting")
        return is_in

    def leave(self, *, wants_more: bool = False) -> None:
        lib.fgw_grant_leave(self.grantee, wants_more, time.monotonic_ns())
        self.says("waiting" if wants_more else "out")

    def close(self) -> None:
        self.memory.close()
