"""Suspending an idle vGPU: the linear memory of its programs leaves the device, each program's until it calls, or the vGPU is resumed. Then
their contexts do, which is the daemon's to carry out (sleep/sleepers.py).

The decision stands in the control page, and workers follow it by themselves (worker/page/room.h): so it outlives this daemon.

Wrong when: others take the device's memory meanwhile. Who comes back waits until there is room.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backend_host.config import Config
from backend_host.contexts import Contexts
from backend_host.device.readings import Keeps, WorkerReading, WorkerState
from backend_host.errors import RefusedError
from backend_host.oversubscription import swap_bytes
from backend_host.sizes import format_size
from backend_host.vgpu import VGpu
from backend_host.vgpu_table import VGpuTable
from backend_host.worker_process import WorkerProcess

_SETTLE_S = 1.0
"""What is between two kernels now is idle within this time, or works."""
_LOOK_S = 0.01


Told = Callable[[VGpu, WorkerProcess, WorkerReading], Contexts]


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
    contexts: Contexts
    contexts_bytes: int
    """That contexts and what is in them take of the device."""


def suspend(vgpus: VGpuTable, name: str, config: Config) -> bool:
    """Has the vGPU's programs bring their memory out, and returns at once: whether one was not to do so already. RefusedError says why not."""
    vgpu = vgpus.named(name)
    if config.memory != "span":
        raise RefusedError(
            'memory = "driver" in the configuration: memory that the driver placed cannot leave the device'
        )
    readings = _idle(vgpu)
    more_bytes = 0
    linear = min(vgpu.gpu.device.memory_bytes, sum(each.linear_bytes for each in readings))
    if not vgpu.gpu.capacity.is_short:  # else it is set aside already
        left = swap_bytes(config) - sum(map(_away, vgpus.others(vgpu)))
        if linear > left:
            raise RefusedError(
                f"{name} has {format_size(linear)} of memory on the device, and of the host's {format_size(max(0, left))} are left for "
                "memory that leaves: raise swap_bytes, or resume another vGPU"
            )
        more_bytes = vgpu.region.region_bytes + linear
    try:
        vgpus.set_suspended(vgpu, is_suspended=True, more_bytes=more_bytes)
    except OSError as error:
        raise RefusedError(f"the limit of the host's memory for {name} cannot be raised: {error.strerror}") from error
    return not all(each.is_suspended for each in readings)


def resume(vgpus: VGpuTable, name: str) -> bool:
    """Has those of its programs come back that have not, and returns at once: whether there was one. RefusedError when there is no such
    vGPU."""
    vgpu = vgpus.named(name)
    was_suspended = any(each.is_suspended for each in _served(vgpu))
    vgpus.set_suspended(vgpu, is_suspended=False)
    return was_suspended


def programs(vgpus: VGpuTable, name: str, told: Told) -> list[Suspended]:
    """How far the vGPU's programs are. `told`: where the contexts of one are. RefusedError when there is no such vGPU."""
    vgpu = vgpus.named(name)
    return [
        Suspended(
            each.program,
            each.pid,
            each.linear_bytes,
            each.resident_bytes,
            each.is_suspended,
            each.keeps.name.lower(),
            told(vgpu, worker, each),
            each.contexts_due_bytes if each.sleep else each.fixed_bytes,
        )
        for worker, each in served(vgpu)
    ]


def served(vgpu: VGpu) -> list[tuple[WorkerProcess, WorkerReading]]:
    """The workers that serve its programs, and what they say."""
    readings = [(worker, worker.reading()) for worker in vgpu.caretaker.workers() if not worker.is_counted]
    return [(worker, each) for worker, each in readings if each is not None and each.state is WorkerState.SERVING]


def host_left(vgpus: VGpuTable, vgpu: VGpu, config: Config) -> int:
    """Bytes of the host's memory that are left for contexts of this vGPU's programs, and what is in them: what is for memory that leaves a
    device, less what may be there of all others, and this one's linear memory."""
    crowded = {each.gpu.number: each.gpu.capacity.allocatable for each in vgpus.all() if each.gpu.capacity.is_short}
    own = 0 if vgpu.gpu.capacity.is_short else sum(each.linear_bytes for each in _served(vgpu))
    return swap_bytes(config) - sum(crowded.values()) - sum(map(_away, vgpus.others(vgpu))) - own


def _served(vgpu: VGpu) -> list[WorkerReading]:
    return [each for _, each in served(vgpu)]


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
    """Bytes of a vGPU that are in the host's memory, or may come there as it is suspended, or moves. Linear memory of a device that is short of
    it was set aside."""
    readings = _served(vgpu)
    is_moving = vgpu.coming is not None
    away = sum(each.contexts_due_bytes for each in readings if each.sleep or is_moving)
    if not vgpu.gpu.capacity.is_short:
        away += sum(
            each.linear_bytes if each.is_suspended or is_moving else max(0, each.linear_bytes - each.resident_bytes)
            for each in readings
        )
    return min(vgpu.gpu.device.memory_bytes, away)  # whatever workers say
