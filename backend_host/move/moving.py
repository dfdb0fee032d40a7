"""One vGPU on its way from one Gpu to another, with all of its programs: the steps, and what is undone where one cannot be taken.

    preparing   slots on the other Gpu for its workers; the mover does what can be done ahead, and programs run on
    leaving     the pause begins: work ends, and programs stand
    changing    they come onto the other device
    returning   workers go by the other Gpu's page, and their memory comes back where it was not there first

Its place on the other Gpu it has before the first step. How they come there is the mover's (mover.py). Up to `changing` the vGPU is where it
was, and anybody may say no: who asked for it, a worker that does not stand, either Gpu. From then on it goes through. A program that is on
neither device gets CUDA_ERROR_DEVICE_UNAVAILABLE; the others go on. What one mover could not do another may, from the first step on.

Programs that come meanwhile wait for their workers. Those that end are moved no more; where all have ended the vGPU changes its place alone.

Wrong when: a driver holds a worker that is to be ended. Its place on the Gpu that it left is never free again.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from backend_host.device.control import ControlPageFullError
from backend_host.device.gpu import Gpu
from backend_host.device.readings import Stage, WorkerState
from backend_host.errors import FairGVError, RefusedError
from backend_host.move.journey import LOOK_S, CannotError, Journey, NeverStandsError
from backend_host.move.mover import Mover
from backend_host.move.plan import Plan
from backend_host.service.journal import about
from backend_host.vgpu import VGpu
from backend_host.worker_process import WorkerProcess

RUN_S = 10.0
"""A worker that stands looks every ms for its new page."""

PREPARING, LEAVING, CHANGING, RETURNING = "preparing", "leaving", "changing", "returning"
DONE, ABORTED, FAILED = "done", "aborted", "failed"

log = logging.getLogger("fairgv.moves")


class Move:
    """One move, in a thread of its own from `start` on, with a place reserved, which it gives up where it stays. Thread-safe."""

    def __init__(
        self,
        plan: Plan,
        journey: Journey,
        mover_of: Callable[[str], Mover],
        awake: Callable[[VGpu], contextlib.AbstractContextManager[None]],
        instead: Callable[[], Plan] | None = None,
    ) -> None:
        """`mover_of`: makes the mover of this name, for this journey. `awake`: keeps a suspended vGPU's contexts on its device; it raises
        RefusedError where they cannot come back. `instead`: the plan to go on by when this one comes to nothing, with a place as
        for this one; it raises RefusedError where there is none."""
        self.plan = plan
        self.vgpu = journey.vgpu
        self.stage = PREPARING
        self.pause_s: float | None = None
        """How long programs stood still, once they go on."""
        self.reason = ""
        """Why it was aborted or failed, or what went wrong for some programs."""
        self.has_changed = False
        """It is on the other Gpu."""
        self._journey = journey
        self._mover_of = mover_of
        self._awake = awake
        self._instead = instead
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"move-{self.vgpu.name}", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    @property
    def moved_bytes(self) -> int:
        """Linear memory that has moved in this stage."""
        return self._journey.moved_bytes

    def abort(self) -> None:
        """It stays where it is. Returns at once. RefusedError when it is too late for that."""
        with self._lock:
            if self._is_over.is_set():
                raise RefusedError(f"the move of {self.vgpu.name} is over")
            if self.stage not in (PREPARING, LEAVING):
                raise RefusedError(f"{self.vgpu.name} is on its way to GPU {self._target.number} already")
            self._journey.is_aborted.set()

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

    @property
    def _target(self) -> Gpu:
        return self._journey.target

    def _run(self) -> None:
        name = self.vgpu.name
        try:
            self._go()
            self.stage = DONE
        except (FairGVError, OSError) as error:
            self.stage, self.reason = FAILED if self._journey.has_lost else ABORTED, str(error)
        except Exception as error:
            log.exception("the move of %s failed", name)
            self.stage, self.reason = FAILED, f"a mistake of FairGV's: {error!r}"
        finally:
            self._is_over.set()
        if self.stage == DONE:
            text = "%s is on GPU %d now; its programs stood still for %.3f s"
            log.info(text, name, self._target.number, self.pause_s or 0.0, extra=about(name))
        else:
            log.warning("%s did not move to GPU %d: %s", name, self._target.number, self.reason, extra=about(name))

    def _go(self) -> None:
        """As planned, or else by what there is instead. Raises FairGVError, OSError: it stays."""
        try:
            self._carry_out()
        except (FairGVError, OSError) as error:
            if self._instead is None or not self._journey.may_go_on or isinstance(error, NeverStandsError):
                raise
            try:
                plan = self._instead()
            except RefusedError as refused:
                raise CannotError(f"{error}; {refused}") from error
            name = self.vgpu.name
            log.warning("%s: no %s, it goes on by %s: %s", name, self.plan.mover, plan.mover, error, extra=about(name))
            with self._lock:
                self.plan, self.stage = replace(plan, no_replay=(str(error),)), PREPARING
            self._carry_out()

    def _carry_out(self) -> None:
        """Raises FairGVError, OSError: it stays, and nothing is left of the attempt."""
        vgpu, table = self.vgpu, self._journey.table
        with contextlib.ExitStack() as always, contextlib.ExitStack() as undo:
            vgpu.caretaker.hold()
            always.callback(vgpu.caretaker.release)
            undo.callback(table.give_up, vgpu)
            always.enter_context(self._awake(vgpu))
            workers = vgpu.caretaker.workers()
            slots = dict(zip(workers, self._reserved(len(workers), undo), strict=True))
            lent = always.enter_context(contextlib.ExitStack())
            pages = self._lent(slots, lent)
            mover = always.enter_context(self._mover_of(self.plan.mover))
            undo.callback(mover.stay, workers)
            mover.prepare(workers)
            self._enter(LEAVING)
            began = time.monotonic()
            mover.leave(workers)
            self._enter(CHANGING)
            self.reason = mover.change(workers)
            there = self._relocate(slots, mover)
            undo.pop_all()
            self._tell(there, pages)
            lent.close()  # so that the death of a worker is seen
            late = self._wait_there(there)
            self.pause_s = time.monotonic() - began
            self._settle(slots, there, late)
            mover.arrive()
        if mover.sees_memory_back(there):
            self.pause_s = time.monotonic() - began

    def _enter(self, stage: str) -> None:
        with self._lock:
            self._journey.check()
            self.stage = stage
        name = self.vgpu.name
        log.info("%s: its move to GPU %d is %s", name, self._target.number, stage, extra=about(name))

    def _reserved(self, nr: int, undo: contextlib.ExitStack) -> list[int]:
        slots = []
        for _ in range(nr):
            try:
                slots.append(self._target.workers.reserve())
            except ControlPageFullError as error:
                raise CannotError(f"GPU {self._target.number} has no room for its programs: {error}") from error
            undo.callback(self._target.page.worker_free, slots[-1])
        return slots

    def _lent(
        self, slots: Mapping[WorkerProcess, int], lent: contextlib.ExitStack
    ) -> dict[WorkerProcess, tuple[int, ...]]:
        """Descriptors of the page to come, while it can still stay: who cannot be told of that is lost once it has changed. Raises OSError,
        CannotError."""
        coming = self.vgpu.coming
        if coming is None:
            raise CannotError(f"the vGPU {self.vgpu.name} has gone")
        page = self._target.page
        return {worker: lent.enter_context(page.for_worker(coming.index, slot)) for worker, slot in slots.items()}

    def _relocate(self, slots: dict[WorkerProcess, int], mover: Mover) -> list[WorkerProcess]:
        """The vGPU is on the other Gpu from here on, with these workers. RefusedError: it cannot be there, and programs that cannot go back are
        ended."""
        try:
            there = self._journey.table.relocate(self.vgpu, slots, mover.more_bytes)
        except RefusedError:
            if not mover.can_return:
                self._journey.end(list(slots))
            raise
        self.has_changed = True
        self.stage = RETURNING
        return there

    def _tell(self, there: Sequence[WorkerProcess], pages: Mapping[WorkerProcess, Sequence[int]]) -> None:
        for worker in there:
            try:
                self._target.workers.tell_page(worker, pages[worker])
            except OSError as error:
                log.error("worker %d does not hear of its page: %s", worker.process.pid, error)
                self._journey.end([worker])

    def _wait_there(self, there: Sequence[WorkerProcess]) -> list[WorkerProcess]:
        """Until none of the workers uses the page before any more. Those that do not come are ended."""
        deadline = time.monotonic() + RUN_S
        while (left := [worker for worker in there if not self._is_there(worker)]) and time.monotonic() < deadline:
            self._is_over.wait(LOOK_S)
        for worker in left:
            log.error("worker %d does not go by its new page", worker.process.pid)
        self._journey.end(left)
        return left

    def _settle(
        self, slots: dict[WorkerProcess, int], there: Sequence[WorkerProcess], late: Sequence[WorkerProcess]
    ) -> None:
        """Frees the workers' places in the page before."""
        page = self._journey.origin.gpu.page
        held = [worker for worker in late if not worker.is_ended.is_set()]
        for worker in there:
            before = worker.settle()
            if before is not None and worker not in held:
                page.worker_free(before.number)
        for worker in slots.keys() - set(there):
            self._target.page.worker_free(slots[worker])
            worker.is_ended.wait(RUN_S)
        if not held:
            self._journey.table.leave_behind(self.vgpu, self._journey.origin)

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
