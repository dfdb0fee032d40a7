"""Moves by replay: each worker makes all that its program has a second time on the other device while that runs on, and changes over in
milliseconds.

Nothing of a program is ever on neither device: until its worker goes by the other Gpu's page it can go back to what was before. A worker
reaches the other device's node from before it prepares until it has come back, and the one before no more once it is there.

Wrong when: a worker does not let go of what it had ahead. Then the next move of its program may find it in the way.
"""

import logging
import time
from collections.abc import Sequence
from typing import Self

from backend_host.device.readings import Keeps, Motion, Stage, WorkerReading
from backend_host.devices import Device
from backend_host.move.journey import LOOK_S, STAND_S, CannotError, Journey, called
from backend_host.move.plan import why_bound
from backend_host.move.root import lend, take_back
from backend_host.worker_process import WorkerProcess

COPY_S = 60.0
"""A context with its modules takes seconds where they are compiled, and memory without a way from device to device 100 ms a GiB."""
BACK_S = 10.0

log = logging.getLogger("fairgv.moves")


class ByReplay:
    """See `Mover`."""

    def __init__(self, journey: Journey) -> None:
        self._journey = journey
        self._lent: list[WorkerProcess] = []
        self.more_bytes = journey.vgpu.region.region_bytes
        self.can_return = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing runs beside the workers."""

    def prepare(self, workers: Sequence[WorkerProcess]) -> None:
        """Workers make it all a second time."""
        for worker, reading in self._journey.readings(workers):
            self._show_way(worker, reading)
        self._go(Motion.COPY)
        self._wait(workers, Stage.PREPARED, COPY_S)

    def leave(self, workers: Sequence[WorkerProcess]) -> None:
        """They let work end, copy what changed, and are on the other device."""
        self._go(Motion.CHANGE)
        self._wait(workers, Stage.STANDS, STAND_S)

    def _show_way(self, worker: WorkerProcess, reading: WorkerReading) -> None:
        target = self._journey.target
        ordinal = worker.ordinal_of(target.device.uuid)
        if ordinal is None:
            raise CannotError(f"{called(reading)} does not see GPU {target.number}")
        if target.has_roots:
            lend(worker.process, target.device)
            self._lent.append(worker)
        worker.at.page.set_motion_device(worker.slot, ordinal)

    def _go(self, motion: Motion) -> None:
        self._journey.table.set_motion(self._journey.vgpu, motion)

    def _wait(self, workers: Sequence[WorkerProcess], stage: Stage, most_s: float) -> None:
        def late(reading: WorkerReading) -> str:
            return _why_late(reading, stage, most_s)

        self._journey.wait(workers, stage, most_s, _ahead, why_bound, late)

    def change(self, workers: Sequence[WorkerProcess]) -> str:
        """They are there already."""
        return ""

    def stay(self, workers: Sequence[WorkerProcess]) -> None:
        """They go back to what was before. Returns when nothing is left of the rest, as another way to move would find it."""
        journey = self._journey
        journey.table.stay(journey.vgpu)
        deadline = time.monotonic() + BACK_S
        while left := [each for _, each in journey.readings(workers) if each.stage is not Stage.RUNS]:
            if not journey.has_devices or time.monotonic() > deadline:
                log.warning("%s: %s does not come back", journey.vgpu.name, called(left[0]))
                break
            time.sleep(LOOK_S)
        self._take_back(journey.target.device)

    def arrive(self) -> None:
        """The device before is nobody's of them any more."""
        self._take_back(self._journey.origin.gpu.device)

    def _take_back(self, device: Device) -> None:
        for worker in self._lent:
            take_back(worker.process, device)

    def sees_memory_back(self, workers: Sequence[WorkerProcess]) -> bool:
        """It came first."""
        return False


def _ahead(reading: WorkerReading) -> int:
    return reading.ahead_bytes


def _why_late(reading: WorkerReading, stage: Stage, most_s: float) -> str:
    if stage is Stage.PREPARED:
        return f"what {called(reading)} has was not on the other device within {most_s:g} s"
    why = {
        Keeps.FOR_WORK: "its work on the GPU does not end",
        Keeps.FOR_CAPTURE: "it captures a graph",
    }.get(reading.keeps, "it does not come to the other device")
    return f"{called(reading)} does not stand still within {most_s:g} s: {why}"
