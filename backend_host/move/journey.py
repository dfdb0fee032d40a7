"""One vGPU on its way: where from, where to, and how far its workers are. What every mover needs, and nothing of how one moves."""

import threading
import time
from collections.abc import Callable, Sequence

from backend_host.caretaker import CUDA_ERROR_DEVICE_UNAVAILABLE
from backend_host.device.gpu import Gpu
from backend_host.device.readings import Keeps, Stage, WorkerReading, WorkerState
from backend_host.errors import FairGVError
from backend_host.rehousing import why_out
from backend_host.relocation import Relocating
from backend_host.vgpu import Place, VGpu
from backend_host.worker_process import WorkerProcess

STAND_S = 10.0
LOOK_S = 0.001


class CannotError(FairGVError):
    """It stays where it is; the text says why."""


class NeverStandsError(CannotError):
    """Whoever moves it: what its program does keeps it."""


class Journey:
    """Of one move. `is_aborted` is set by any thread, the rest is the move's own."""

    def __init__(self, vgpu: VGpu, target: Gpu, table: Relocating) -> None:
        self.vgpu, self.target, self.table = vgpu, target, table
        self.origin = Place(vgpu.gpu, vgpu.index)
        self.moved_bytes = 0
        """Linear memory that is off the one device, then that is on the other."""
        self.has_lost = False
        """Programs were ended."""
        self.is_aborted = threading.Event()

    def check(self) -> None:
        """Raises CannotError when it is to stay. What fails is said first: whoever sees to that aborts the move."""
        for gpu in (self.origin.gpu, self.target):
            if gpu.failure is not None:
                raise CannotError(f"GPU {gpu.number} has failed: {gpu.failure.reason}")
        if self.is_aborted.is_set():
            raise CannotError("it was asked to stay")
        if self.target.is_drained:
            raise CannotError(f"GPU {self.target.number} is {why_out(self.target)}")

    @property
    def has_devices(self) -> bool:
        """Neither has failed."""
        return self.origin.gpu.failure is None and self.target.failure is None

    @property
    def may_go_on(self) -> bool:
        """It can be tried again."""
        return self.has_devices and not self.target.is_drained and not self.is_aborted.is_set() and not self.has_lost

    def readings(self, workers: Sequence[WorkerProcess]) -> list[tuple[WorkerProcess, WorkerReading]]:
        """Of those that have not ended."""
        found = [(worker, worker.reading()) for worker in workers if not worker.is_ending]
        return [
            (worker, reading)
            for worker, reading in found
            if reading is not None and reading.state is not WorkerState.ENDED
        ]

    def wait(
        self,
        workers: Sequence[WorkerProcess],
        stage: Stage,
        most_s: float,
        moved: Callable[[WorkerReading], int],
        why_never: Callable[[WorkerReading], str],
        why_late: Callable[[WorkerReading], str],
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """Until all have come so far. `moved`: bytes of one; `why_never`: one will not come so far, "" where it may; `look`: what is seen to
        at each look. Raises CannotError."""
        deadline = time.monotonic() + most_s
        while True:
            self.check()
            look()
            readings = [reading for _, reading in self.readings(workers)]
            self.moved_bytes = sum(map(moved, readings))
            if never := "; ".join(filter(None, map(why_never, readings))):
                raise CannotError(never)
            late = [each for each in readings if each.stage < stage]
            if not late:
                return
            if time.monotonic() > deadline:
                is_kept = stage is Stage.STANDS and late[0].keeps in (Keeps.FOR_WORK, Keeps.FOR_CAPTURE)
                why = self._why_late(late[0], most_s, why_late)
                raise NeverStandsError(why) if is_kept else CannotError(why)
            self.is_aborted.wait(LOOK_S)

    @staticmethod
    def _why_late(reading: WorkerReading, most_s: float, why_late: Callable[[WorkerReading], str]) -> str:
        if reading.state is WorkerState.WARM:
            return f"{called(reading)} has not begun within {most_s:g} s"
        return why_late(reading)

    def end(self, workers: Sequence[WorkerProcess]) -> None:
        """Their programs get the error of a device that is not there."""
        self.has_lost |= bool(workers)
        self.vgpu.caretaker.end(workers, CUDA_ERROR_DEVICE_UNAVAILABLE)


def called(reading: WorkerReading) -> str:
    """A program, for a person."""
    return f"{reading.program or 'a program'} (worker {reading.pid})"
