"""What the daemon decides of programs that leave their device: suspended ones (worker/page/room.h, sleep.h), and those that change their Gpu
(worker/page/motion.h).
"""

from __future__ import annotations

from typing import Any

from backend_host.device.readings import Motion, Sleep
from backend_host.device.spaces_told import bounded
from backend_host.worker._worker import lib

_MAX_VGPUS: int = lib.FGW_MAX_VGPUS
_MAX_WORKERS: int = lib.FGW_MAX_WORKERS


class Away:
    """A part of ControlPage."""

    page: Any

    def set_suspended(self, vgpu: int, *, is_suspended: bool) -> None:
        """Has its workers bring their memory off the device, each until its client calls; or has those come back that have not."""
        lib.fgw_control_set_suspended(self.page, bounded(vgpu, _MAX_VGPUS), is_suspended)

    def set_sleep(self, slot: int, sleep: Sleep) -> None:
        """How far the suspended worker in this slot is to go whose contexts leave the device (worker/page/sleep.h)."""
        lib.fgw_control_set_sleep(self.page, bounded(slot, _MAX_WORKERS), sleep)

    def set_laid_bytes(self, slot: int, nr_bytes: int) -> None:
        """What the contexts of the worker in this slot took of the device, as they left it."""
        lib.fgw_control_set_laid_bytes(self.page, bounded(slot, _MAX_WORKERS), nr_bytes)

    def set_motion(self, vgpu: int, motion: Motion) -> None:
        """How far its workers are to go, as it changes its Gpu (worker/page/motion.h)."""
        lib.fgw_control_set_motion(self.page, bounded(vgpu, _MAX_VGPUS), motion)

    def set_motion_device(self, slot: int, device: int) -> None:
        """Before a motion: the ordinal of the device that it leads to, as the worker in this slot counts them."""
        lib.fgw_control_set_motion_device(self.page, bounded(slot, _MAX_WORKERS), device)
