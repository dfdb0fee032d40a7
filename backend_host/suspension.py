"""Suspending an idle vGPU: the linear memory of its programs leaves the device, each program's until it calls, or the vGPU is resumed.

The decision stands in the control page, and workers follow it by themselves (worker/page/room.h): so it outlives this daemon.

Wrong when: others take the device's memory meanwhile. Who comes back waits until there is room.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from backend_host.config import Config
from backend_host.device.readings import Keeps, WorkerReading, WorkerState
from backend_host.errors import RefusedError
from backend_host.oversubscription import swap_bytes
from backend_host.sizes import format_size
from backend_host.vgpu import VGpu
from backend_host.vgpus import VGpuRegistry

_SETTLE_S = 1.0
"""What is between two kernels now is idle within this time, or works."""
_LOOK_S = 0.01


@dataclass(frozen=True)
class Suspended:
    """One program: its linear memory, in bytes, what of it is on the device, and why that stays there."""

    program: str
    worker_pid: int
    linear_bytes: int
    resident_bytes: int
    is_suspended: bool
    """It is out, or to go; a program that called since then is not."""
    keeps: str
    """`not`, `for_work`, `shared`, `for_capture` or `for_host`."""


def suspend(vgpus: VGpuRegistry, name: str, config: Config) -> None:
    """Has the vGPU's programs bring their memory out, and returns at once. RefusedError says why not."""
    vgpu = vgpus.named(name)
    if config.memory != "span":
        raise RefusedError(
            'memory = "driver" in the configuration: memory that the driver placed cannot leave the device'
        )
    readings = _idle(vgpu)
    linear = min(vgpu.gpu.device.memory_bytes, sum(each.linear_bytes for each in readings))
    if not vgpu.gpu.capacity.is_short:  # else it is set aside already
        left = swap_bytes(config) - sum(map(_away, vgpus.others(vgpu)))
        if linear > left:
            raise RefusedError(
                f"{name} has {format_size(linear)} of memory on the device, and of the host's {format_size(max(0, left))} are left for "
                "memory that leaves: raise swap_bytes, or resume another vGPU"
            )
        try:
            vgpu.gpu.workers.allow_memory(vgpu.index, vgpu.region.region_bytes + linear)
        except OSError as error:
            raise RefusedError(
                f"the limit of the host's memory for {name} cannot be raised: {error.strerror}"
            ) from error
    vgpu.gpu.page.set_suspended(vgpu.index, is_suspended=True)


def resume(vgpus: VGpuRegistry, name: str) -> None:
    """Has those of its programs come back that have not, and returns at once. RefusedError when there is no such vGPU."""
    vgpu = vgpus.named(name)
    vgpu.gpu.page.set_suspended(vgpu.index, is_suspended=False)


def programs(vgpus: VGpuRegistry, name: str) -> list[Suspended]:
    """How far the vGPU's programs are. RefusedError when there is no such vGPU."""
    return [
        Suspended(
            each.program,
            each.pid,
            each.linear_bytes,
            each.resident_bytes,
            each.is_suspended,
            each.keeps.name.lower(),
        )
        for each in _served(vgpus.named(name))
    ]


def _served(vgpu: VGpu) -> list[WorkerReading]:
    readings = (worker.reading() for worker in vgpu.caretaker.workers() if not worker.is_counted)
    return [each for each in readings if each is not None and each.state is WorkerState.SERVING]


def _idle(vgpu: VGpu) -> Sequence[WorkerReading]:
    """Its programs, once none of them works."""
    deadline = time.monotonic() + _SETTLE_S
    while True:
        readings = _served(vgpu)
        if not readings:
            raise RefusedError(f"{vgpu.name} has no program: there is nothing to suspend")
        busy = [each for each in readings if each.is_user or each.is_waiting or each.keeps is Keeps.FOR_WORK]
        if not busy:
            return readings
        if time.monotonic() > deadline:
            raise RefusedError(
                f"{vgpu.name} works: {busy[0].program} has work on the GPU, or waits for it. A vGPU is suspended while it is idle, as it "
                "comes back with the next call"
            )
        time.sleep(_LOOK_S)


def _away(vgpu: VGpu) -> int:
    """Bytes of a vGPU that are in the host's memory, or may come there as it is suspended."""
    if vgpu.gpu.capacity.is_short:
        return 0
    away = sum(
        each.linear_bytes if each.is_suspended else max(0, each.linear_bytes - each.resident_bytes)
        for each in _served(vgpu)
    )
    return min(vgpu.gpu.device.memory_bytes, away)  # whatever workers say
