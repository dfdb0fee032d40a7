"""Balancing by the daemon: ten times a second it looks at what all vGPUs want, and has those move that scheduler/balance.py says.

With `compact` a Gpu without vGPUs keeps no warm workers, as contexts keep a device from resting.

A vGPU that is to be on its Gpu (`--gpu`) stays there, and so does one that no mover can move now. Each decision is in the log with its numbers.

Wrong when: demands are. They are means of the last minute, and of a program that computes on the CPU while it waits they are too high.
"""

import logging
import threading
import time
from collections.abc import Hashable, Sequence

from backend_host.device.control import MAX_VGPUS
from backend_host.device.gpu import Gpu
from backend_host.errors import RefusedError
from backend_host.move.interface import Moves
from backend_host.move.looking import programs_of
from backend_host.move.words import UNDER_WAY
from backend_host.rehousing import why_out
from backend_host.service.journal import about
from backend_host.vgpu import VGpu
from backend_host.vgpus import VGpuRegistry
from scheduler.balance import COMPACT, OFF, Balancer, Device, Load

_LOOK_S = 0.1

log = logging.getLogger("fairgv.moves")


class Balancing:
    """Of one daemon, whose mode may change at any time. Thread-safe."""

    def __init__(self, gpus: Sequence[Gpu], vgpus: VGpuRegistry, moves: Moves, mode: str = OFF) -> None:
        self._gpus, self._vgpus, self._moves = gpus, vgpus, moves
        self._balancer = Balancer(mode)
        self._is_stopping = threading.Event()
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="balancing", daemon=True)

    @property
    def mode(self) -> str:
        """`off`, `balance` or `compact`."""
        return self._balancer.mode

    def set_mode(self, mode: str) -> None:
        """From the next look on; of one Gpu nothing comes of any."""
        if mode != self._balancer.mode:
            log.info("balancing: %s, where it was %s", mode, self._balancer.mode)
            self._balancer.mode = mode
        self._changed.set()

    def start(self) -> None:
        """Begins to look, while the mode is not off."""
        self._thread.start()

    def stop(self) -> None:
        """What is under way goes on."""
        self._is_stopping.set()
        self._changed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            if self._balancer.mode == OFF:
                for gpu in self._gpus:
                    gpu.workers.rest(is_resting=False)
                self._changed.wait()
                self._changed.clear()
                continue
            try:
                self.look()
            except Exception:
                log.exception("a look at what vGPUs want failed; the next one is in a second")
                self._is_stopping.wait(1)
            self._is_stopping.wait(_LOOK_S)

    def look(self) -> None:
        """One look, and what follows from it."""
        vgpus = self._vgpus.all()
        used = {gpu for vgpu in vgpus for gpu in (vgpu.gpu, vgpu.coming and vgpu.coming.gpu)}
        for gpu in self._gpus:
            gpu.workers.rest(is_resting=self._balancer.mode == COMPACT and gpu not in used)
        devices = [
            Device(gpu.number, gpu.capacity.allocatable or gpu.device.memory_bytes, MAX_VGPUS, why_out(gpu))
            for gpu in self._gpus
        ]
        for move in self._balancer.look(time.monotonic_ns(), devices, self._loads(vgpus), self._pause_ns):
            name = str(move.vgpu)
            log.info("%s", move, extra=about(name))
            try:
                self._moves.start(name, str(move.target))
            except RefusedError as error:
                log.warning("%s stays: %s", name, error, extra=about(name))

    def _loads(self, vgpus: Sequence[VGpu]) -> list[Load]:
        loads = []
        for gpu in self._gpus:
            demands = gpu.demands(gpu.page.vgpus())
            loads += [self._load(vgpu, demands.get(vgpu.index)) for vgpu in vgpus if vgpu.gpu is gpu]
        return loads

    def _load(self, vgpu: VGpu, demand: float | None) -> Load:
        move = self._moves.find(vgpu.name)
        is_moving = move is not None and move.stage in UNDER_WAY and vgpu.gpu.number != move.plan.target
        return Load(
            vgpu.name,
            vgpu.gpu.number,
            demand,
            memory=vgpu.entitlement.quota_bytes or sum(each.allocated_bytes for each in programs_of(vgpu)),
            request=vgpu.entitlement.request,
            to=move.plan.target if is_moving and move is not None else None,
        )

    def _pause_ns(self, name: Hashable, target: int) -> int | None:
        try:
            if self._vgpus.named(str(name)).entitlement.gpu:
                return None
            return round(self._moves.plan(str(name), str(target)).pause_s * 1e9)
        except RefusedError:
            return None
