"""Moves by the driver's checkpoints of processes: linear memory goes to the host's by way of workers, and what is left is the driver's to move.

Once contexts are off the device there is no way back but the driver's, so the record of the vGPU says that nobody knows where its programs are,
until that is over.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Self

from backend_host.device.readings import Keeps, Motion, Stage, WorkerReading
from backend_host.move.checkpointing import Checkpointer
from backend_host.move.journey import LOOK_S, STAND_S, CannotError, Journey, called
from backend_host.move.root import lend, take_back
from backend_host.service.journal import about
from backend_host.worker_process import WorkerProcess

PREPARE_S = 30.0
STILL_S = 1.0
"""When no memory has come for so long, the rest comes as there is room."""

log = logging.getLogger("fairgv.moves")


class ByCheckpoint:
    """See `Mover`."""

    def __init__(self, journey: Journey, change_of: Callable[[str], Checkpointer] = Checkpointer) -> None:
        """`change_of`: makes what changes devices by a device library."""
        self._journey = journey
        self._change_of = change_of
        self._ending = contextlib.ExitStack()
        self._is_anywhere = False
        self.more_bytes = 0
        self.can_return = False

    def __enter__(self) -> Self:
        """Starts the process that changes devices, which takes as long as a pause."""
        self._changer = self._ending.enter_context(self._change_of(self._journey.origin.gpu.device.path))
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def prepare(self, workers: Sequence[WorkerProcess]) -> None:
        """Workers make the host's memory ready for what they have on the device."""
        self._make_room(workers)
        self._journey.table.set_motion(self._journey.vgpu, Motion.PREPARE)
        self._wait(workers, Stage.PREPARED, PREPARE_S)
        self._changer.wait()

    def leave(self, workers: Sequence[WorkerProcess]) -> None:
        """They let work end, and bring their memory off the device."""
        self._journey.table.set_motion(self._journey.vgpu, Motion.STAND)
        self._wait(workers, Stage.STANDS, STAND_S)

    def _make_room(self, workers: Sequence[WorkerProcess]) -> None:
        """Lets the workers have so much of the host's memory that all that they take of the device fits, contexts included, as the driver moves
        what does not leave by itself. They take more until they stand."""
        journey = self._journey
        gpu = journey.origin.gpu
        taken = min(gpu.device.memory_bytes, sum(each.memory_bytes for _, each in journey.readings(workers)))
        more_bytes = journey.vgpu.region.region_bytes + taken
        if more_bytes > self.more_bytes:
            gpu.workers.allow_memory(journey.origin.index, more_bytes)
            self.more_bytes = more_bytes

    def _wait(self, workers: Sequence[WorkerProcess], stage: Stage, most_s: float) -> None:
        def late(reading: WorkerReading) -> str:
            return _why_late(reading, stage, most_s)

        def look() -> None:
            self._make_room(workers)

        self._journey.wait(workers, stage, most_s, _off_the_device, _why_never, late, look)

    def change(self, workers: Sequence[WorkerProcess]) -> str:
        """The driver takes their contexts off this device and puts them on the other."""
        journey = self._journey
        journey.table.begin_change(journey.vgpu)
        self._is_anywhere = True
        readings = journey.readings(workers)
        living = {worker.process.pid: worker for worker, _ in readings}
        if not living:
            return ""
        before, after = journey.origin.gpu.device, journey.target.device
        left = after  # as long as they are where they were
        try:
            if journey.target.has_roots:
                for worker in living.values():
                    lend(worker.process, after)
            fixed = min(before.memory_bytes, sum(each.fixed_bytes for _, each in readings))
            outcome = self._changer.change(list(living), before.uuid, after.uuid, fixed)
            left = before if outcome.has_changed else after
        finally:
            if journey.target.has_roots:
                for worker in living.values():
                    take_back(worker.process, left)
        name = journey.vgpu.name
        took = ", ".join(f"{step} {ms:.1f} ms" for step, ms in outcome.ms.items())
        log.info("%s: %s", name, took, extra=about(name))
        for pid, why in outcome.stuck.items():
            log.error("%s: worker %d is ended: %s", name, pid, why, extra=about(name))
        journey.end([living[pid] for pid in outcome.stuck])
        if not outcome.has_changed:
            raise CannotError(outcome.reason)
        for worker in living.values():
            worker.exchange(before.uuid, after.uuid)
        return outcome.reason

    def stay(self, workers: Sequence[WorkerProcess]) -> None:
        """Where they are is known again, and their memory comes back."""
        if self._is_anywhere:
            self._journey.table.end_change(self._journey.vgpu)
        self._journey.table.stay(self._journey.vgpu)

    def arrive(self) -> None:
        """Nothing is left."""

    def sees_memory_back(self, workers: Sequence[WorkerProcess]) -> bool:
        """As far as it comes at once."""
        journey = self._journey
        grew, most = time.monotonic(), -1
        while not journey.target.capacity.is_short and time.monotonic() - grew < STILL_S:
            readings = [reading for _, reading in journey.readings(workers)]
            journey.moved_bytes = sum(each.resident_bytes for each in readings)
            if all(each.is_suspended or each.resident_bytes >= each.linear_bytes for each in readings):
                return True
            if journey.moved_bytes > most:
                grew, most = time.monotonic(), journey.moved_bytes
            time.sleep(LOOK_S)
        return False


def _off_the_device(reading: WorkerReading) -> int:
    return max(0, reading.linear_bytes - reading.resident_bytes)


def _why_never(reading: WorkerReading) -> str:
    if reading.keeps is not Keeps.SHARED:
        return ""
    return f"{reading.program} shares memory with other programs, which cannot leave the device"


def _why_late(reading: WorkerReading, stage: Stage, most_s: float) -> str:
    if stage is Stage.PREPARED:
        return f"the host's memory for what {called(reading)} has on the device was not ready within {most_s:g} s"
    why = {
        Keeps.FOR_WORK: "its work on the GPU does not end",
        Keeps.FOR_CAPTURE: "it captures a graph",
        Keeps.FOR_HOST: "the host has no memory for what it has on the device",
    }.get(reading.keeps, "its memory does not leave the device")
    return f"{called(reading)} does not stand still within {most_s:g} s: {why}"
