"""One vGPU on its way from one Gpu to another, with all of its programs: the steps, and what is undone where one cannot be taken.

    preparing   a place on the other Gpu, slots for its workers; they make the host's memory ready, and programs run on
    leaving     the pause begins: workers let work end, and bring their memory off the device
    changing    the driver takes their contexts off this device and puts them on the other
    returning   workers go by the other Gpu's page, and their memory comes back

Up to `changing` the vGPU is where it was, and anybody may say no: who asked for it, a worker that does not stand, either Gpu. From then on it
goes through. A program that the driver does not put back gets CUDA_ERROR_DEVICE_UNAVAILABLE; the others go on.

Programs that come meanwhile wait for their workers. Those that end are moved no more; where all have ended the vGPU changes its place alone.

Wrong when: a driver holds a worker that is to be ended. Its place on the Gpu that it left is never free again.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence

from backend_host.caretaker import CUDA_ERROR_DEVICE_UNAVAILABLE
from backend_host.device.control import ControlPageFullError
from backend_host.device.gpu import Gpu
from backend_host.device.readings import Keeps, Motion, Stage, WorkerReading, WorkerState
from backend_host.errors import FairGVError, RefusedError
from backend_host.move.checkpointing import Checkpointer
from backend_host.move.plan import Plan
from backend_host.move.root import lend, take_back
from backend_host.relocation import Relocating
from backend_host.service.journal import about
from backend_host.vgpu import Place, VGpu
from backend_host.worker_process import WorkerProcess

PREPARE_S = 30.0
STAND_S = 10.0
RUN_S = 10.0
"""A worker that stands looks every ms for its new page."""
STILL_S = 1.0
"""When no memory has come for so long, the rest comes as there is room."""
LOOK_S = 0.002

PREPARING, LEAVING, CHANGING, RETURNING = "preparing", "leaving", "changing", "returning"
DONE, ABORTED, FAILED = "done", "aborted", "failed"

log = logging.getLogger("fairgv.moves")


class _CannotError(FairGVError):
    """It stays where it is; the text says why."""


class Move:
    """One move, in a thread of its own from `start` on. Thread-safe."""

    def __init__(
        self,
        plan: Plan,
        vgpu: VGpu,
        target: Gpu,
        table: Relocating,
        change_of: Callable[[str], Checkpointer] = Checkpointer,
    ) -> None:
        """`change_of`: makes what changes devices by a device library."""
        self.plan = plan
        self.vgpu = vgpu
        self.stage = PREPARING
        self.moved_bytes = 0
        """Linear memory that is off the one device, then that is on the other."""
        self.pause_s: float | None = None
        """How long programs stood still, once they go on."""
        self.reason = ""
        """Why it was aborted or failed, or what went wrong for some programs."""
        self.has_changed = False
        """It is on the other Gpu."""
        self._has_lost = False
        """Programs were ended."""
        self._origin = Place(vgpu.gpu, vgpu.index)
        self._target = target
        self._table = table
        self._change_of = change_of
        self._abort = threading.Event()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"move-{vgpu.name}", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def abort(self) -> None:
        """It stays where it is. Returns at once. RefusedError when it is too late for that."""
        with self._lock:
            if self._is_over.is_set():
                raise RefusedError(f"the move of {self.vgpu.name} is over")
            if self.stage not in (PREPARING, LEAVING):
                raise RefusedError(f"{self.vgpu.name} is on its way to GPU {self._target.number} already")
            self._abort.set()

    def give_up(self) -> None:
        """The same where it is not too late."""
        with contextlib.suppress(RefusedError):
            self.abort()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it is over by then."""
        return self._is_over.wait(timeout_s)

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set()

    def _run(self) -> None:
        name = self.vgpu.name
        try:
            self._carry_out()
            self.stage = DONE
        except (FairGVError, OSError) as error:
            self.stage, self.reason = FAILED if self._has_lost else ABORTED, str(error)
        except Exception as error:
            log.exception("the move of %s failed", name)
            self.stage, self.reason = FAILED, f"a mistake of FairGV's: {error!r}"
        finally:
            self._is_over.set()
        if self.stage == DONE:
            text = "%s is on GPU %d now; its programs stood still for %.2f s"
            log.info(text, name, self._target.number, self.pause_s or 0.0, extra=about(name))
        else:
            log.warning("%s did not move to GPU %d: %s", name, self._target.number, self.reason, extra=about(name))

    def _carry_out(self) -> None:
        """Raises FairGVError, OSError: it stays, and nothing is left of the attempt."""
        vgpu, table = self.vgpu, self._table
        with contextlib.ExitStack() as always, contextlib.ExitStack() as undo:
            vgpu.caretaker.hold()
            always.callback(vgpu.caretaker.release)
            table.reserve(vgpu, self._target)
            undo.callback(table.give_up, vgpu)
            workers = vgpu.caretaker.workers()
            slots = dict(zip(workers, self._reserved(len(workers), undo), strict=True))
            changer = always.enter_context(self._change_of(self._origin.gpu.device.path))
            undo.callback(table.stay, vgpu)
            more_bytes = self._make_room(workers)
            table.set_motion(vgpu, Motion.PREPARE)
            self._wait(workers, Stage.PREPARED, PREPARE_S)
            changer.wait()
            self._enter(LEAVING)
            began = time.monotonic()
            table.set_motion(vgpu, Motion.STAND)
            self._wait(workers, Stage.STANDS, STAND_S)
            self._enter(CHANGING)
            table.begin_change(vgpu)
            undo.callback(table.end_change, vgpu)
            self._change(changer, workers)
            there = self._relocate(slots, more_bytes)
            undo.pop_all()
            self._tell(there)
            self._settle(slots, there)
            self.pause_s = time.monotonic() - began
        self._see_memory_back(workers, began)

    def _enter(self, stage: str) -> None:
        with self._lock:
            self._check()
            self.stage = stage

    def _check(self) -> None:
        """Raises _CannotError."""
        if self._abort.is_set():
            raise _CannotError("it was asked to stay")
        for gpu in (self._origin.gpu, self._target):
            if gpu.failure is not None:
                raise _CannotError(f"GPU {gpu.number} has failed: {gpu.failure.reason}")

    def _reserved(self, nr: int, undo: contextlib.ExitStack) -> list[int]:
        slots = []
        for _ in range(nr):
            try:
                slots.append(self._target.workers.reserve())
            except ControlPageFullError as error:
                raise _CannotError(f"GPU {self._target.number} has no room for its programs: {error}") from error
            undo.callback(self._target.page.worker_free, slots[-1])
        return slots

    def _make_room(self, workers: Sequence[WorkerProcess]) -> int:
        """Lets the workers have so much of the host's memory that all that they take of the device fits, contexts included, as the driver moves
        what does not leave by itself. How much more than without a region, here and where they go. Raises OSError."""
        taken = sum(each.memory_bytes for _, each in self._readings(workers))
        more_bytes = self.vgpu.region.region_bytes + taken
        self._origin.gpu.workers.allow_memory(self._origin.index, more_bytes)
        return more_bytes

    def _readings(self, workers: Sequence[WorkerProcess]) -> list[tuple[WorkerProcess, WorkerReading]]:
        """Of those that have not ended."""
        found = [(worker, worker.reading()) for worker in workers if not worker.is_ending]
        return [
            (worker, reading)
            for worker, reading in found
            if reading is not None and reading.state is not WorkerState.ENDED
        ]

    def _wait(self, workers: Sequence[WorkerProcess], stage: Stage, most_s: float) -> None:
        """Until all have come so far. Raises _CannotError."""
        deadline = time.monotonic() + most_s
        while True:
            self._check()
            readings = [reading for _, reading in self._readings(workers)]
            self.moved_bytes = sum(max(0, each.linear_bytes - each.resident_bytes) for each in readings)
            shared = next((each for each in readings if each.keeps is Keeps.SHARED), None)
            if shared is not None:
                raise _CannotError(f"{shared.program} shares memory with other programs, which cannot leave the device")
            late = [each for each in readings if each.stage < stage]
            if not late:
                return
            if time.monotonic() > deadline:
                raise _CannotError(_why_late(late[0], stage, most_s))
            self._abort.wait(LOOK_S)

    def _change(self, changer: Checkpointer, workers: Sequence[WorkerProcess]) -> None:
        """Those that live are on the other device. FairGVError, OSError: they are where they were. Who is on none is ended."""
        living = {worker.process.pid: worker for worker, _ in self._readings(workers)}
        if not living:
            return
        before, after = self._origin.gpu.device, self._target.device
        left = after  # as long as they are where they were
        try:
            if self._target.has_roots:
                for worker in living.values():
                    lend(worker.process, after)
            outcome = changer.change(list(living), before.uuid, after.uuid)
            left = before if outcome.has_changed else after
        finally:
            if self._target.has_roots:
                for worker in living.values():
                    take_back(worker.process, left)
        took = ", ".join(f"{step} {ms:.1f} ms" for step, ms in outcome.ms.items())
        log.info("%s: %s", self.vgpu.name, took, extra=about(self.vgpu.name))
        for pid, why in outcome.stuck.items():
            log.error("%s: worker %d is ended: %s", self.vgpu.name, pid, why, extra=about(self.vgpu.name))
        self._end([living[pid] for pid in outcome.stuck])
        self.reason = outcome.reason
        if not outcome.has_changed:
            raise _CannotError(outcome.reason)

    def _end(self, workers: Sequence[WorkerProcess]) -> None:
        self._has_lost |= bool(workers)
        self.vgpu.caretaker.end(workers, CUDA_ERROR_DEVICE_UNAVAILABLE)

    def _relocate(self, slots: dict[WorkerProcess, int], more_bytes: int) -> list[WorkerProcess]:
        """The vGPU is on the other Gpu from here on, with these workers. RefusedError: it cannot be there, and its programs are ended."""
        try:
            there = self._table.relocate(self.vgpu, slots, more_bytes)
        except RefusedError:
            self._end(list(slots))
            raise
        self.has_changed = True
        self.stage = RETURNING
        return there

    def _tell(self, there: Sequence[WorkerProcess]) -> None:
        for worker in there:
            try:
                self._target.workers.tell_page(worker)
            except OSError as error:
                log.error("worker %d does not hear of its page: %s", worker.process.pid, error)
                self._end([worker])

    def _settle(self, slots: dict[WorkerProcess, int], there: Sequence[WorkerProcess]) -> None:
        """Waits until none of the workers uses the page before any more, and frees their places there."""
        page = self._origin.gpu.page
        deadline = time.monotonic() + RUN_S
        while (left := [worker for worker in there if not self._is_there(worker)]) and time.monotonic() < deadline:
            self._is_over.wait(LOOK_S)
        for worker in left:
            log.error("worker %d does not go by its new page", worker.process.pid)
        self._end(left)
        held = [worker for worker in left if not worker.is_ended.is_set()]
        for worker in there:
            before = worker.settle()
            if before is not None and worker not in held:
                page.worker_free(before.number)
        for worker in slots.keys() - set(there):
            self._target.page.worker_free(slots[worker])
            worker.is_ended.wait(RUN_S)
        if not held:
            self._table.leave_behind(self.vgpu, self._origin)

    def _is_there(self, worker: WorkerProcess) -> bool:
        """By the kernel's word it has closed the page before, and by its own it goes by this one; or it has ended."""
        if worker.is_ended.is_set():
            return True
        before = worker.at.before
        reading = worker.at.page.worker(worker.slot)
        return (
            (before is None or before.page.has_died(before.number))
            and reading is not None
            and reading.state is WorkerState.SERVING
            and reading.stage is Stage.RUNS
        )

    def _see_memory_back(self, workers: Sequence[WorkerProcess], began: float) -> None:
        """As far as it comes at once."""
        grew, most = time.monotonic(), -1
        while not self._target.capacity.is_short and time.monotonic() - grew < STILL_S:
            readings = [reading for _, reading in self._readings(workers)]
            self.moved_bytes = sum(each.resident_bytes for each in readings)
            if all(each.is_suspended or each.resident_bytes >= each.linear_bytes for each in readings):
                self.pause_s = time.monotonic() - began
                return
            if self.moved_bytes > most:
                grew, most = time.monotonic(), self.moved_bytes
            self._is_over.wait(LOOK_S)


def _why_late(reading: WorkerReading, stage: Stage, most_s: float) -> str:
    called = f"{reading.program or 'a program'} (worker {reading.pid})"
    if reading.state is WorkerState.WARM:
        return f"{called} has not begun within {most_s:g} s"
    if stage is Stage.PREPARED:
        return f"the host's memory for what {called} has on the device was not ready within {most_s:g} s"
    why = {
        Keeps.FOR_WORK: "its work on the GPU does not end",
        Keeps.FOR_CAPTURE: "it captures a graph",
        Keeps.FOR_HOST: "the host has no memory for what it has on the device",
    }.get(reading.keeps, "its memory does not leave the device")
    return f"{called} does not stand still within {most_s:g} s: {why}"
