"""Suspended programs whose contexts leave the device, too: one thread looks who can sleep, and who calls.

A program of a suspended vGPU whose memory has left stands (worker/page/sleep.h), and a process of the daemon's takes its contexts off the
device (process.py). Once it calls, or the vGPU is resumed, they are brought back, and it goes on. A thread of its own does that for each
vGPU, so that nobody waits for another one's driver calls.

All that has to outlive a daemon stands in the page. The next one brings back whom this one left on its way.

Where contexts cannot leave, programs stay suspended as they are, and the reason is told. It is asked for again with the next suspension.

Wrong when: a program of somebody else's takes the device's memory between the look at what is left and the restore. Then the driver has no way
back, and the program gets CUDA_ERROR_DEVICE_UNAVAILABLE.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from backend_host.caretaker import CUDA_ERROR_DEVICE_UNAVAILABLE
from backend_host.config import Config
from backend_host.contexts import OFF, ON, Contexts
from backend_host.device.gpu import Gpu
from backend_host.device.readings import Bound, Keeps, Sleep, Stage, WorkerReading, WorkerState
from backend_host.errors import FairGVError, RefusedError
from backend_host.move.trial import Trial, plainly
from backend_host.service.events import printable
from backend_host.service.journal import about
from backend_host.sizes import format_programs, format_size
from backend_host.sleep.errand import Errand
from backend_host.suspension import host_left, served
from backend_host.vgpu import VGpu
from backend_host.vgpu_table import VGpuTable
from backend_host.worker_process import WorkerProcess

LOOK_S = 0.05
TRIED_S = 30.0
"""The daemon has just started: so long a trial of all devices is waited for."""
STAND_S = 2.0
AWAKE_S = 20.0
"""So long a move waits for contexts that are to come back first."""
_AGAIN_S, _AGAIN_MOST_S = 0.25, 5.0
"""Between looks whether the device has room for contexts that are to come back: more each time."""
_STEP_S = 0.005

log = logging.getLogger("fairgv.sleep")

_MANAGED = "its program has managed variables, which drivers do not checkpoint"

Reading = tuple[WorkerProcess, WorkerReading]


class Sleepers:
    """Of one daemon. `start` and `stop` once. Thread-safe."""

    def __init__(
        self,
        vgpus: VGpuTable,
        config_of: Callable[[], Config],
        *,
        is_tried: bool = False,
        errand_of: Callable[[str], Errand] = Errand,
        trial_of: Callable[[Gpu], str] = lambda gpu: Trial(gpu.start, gpu.device.uuid).run(),
    ) -> None:
        """`is_tried`: the daemon finds out by itself whether its devices' programs can be checkpointed; else `trial_of` says why not."""
        self._vgpus, self._config_of = vgpus, config_of
        self._is_tried, self._errand_of, self._trial_of = is_tried, errand_of, trial_of
        self._proven: set[int] = set()
        self._busy: dict[VGpu, threading.Thread] = {}
        self._held: dict[VGpu, int] = {}
        self._why: dict[WorkerProcess, str] = {}
        """Why contexts stay on the device, or off it for now."""
        self._spent: set[WorkerProcess] = set()
        """They called since their vGPU was suspended. Whatever they say then, this suspension is over for them: else a worker that was taken
        over could have its contexts moved all the time."""
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sleepers", daemon=True)

    def start(self) -> None:
        """Begins to look: an earlier daemon may have left some."""
        self._thread.start()

    def stop(self) -> None:
        """Begins nothing more, and waits for what is under way. Who sleeps goes on sleeping."""
        self._is_stopping.set()
        self._news.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self._lock:
            threads = list(self._busy.values())
        for thread in threads:
            thread.join()

    def look(self, vgpu: VGpu) -> None:
        """It was suspended, or resumed, just now. What kept contexts where they are is tried again."""
        with self._lock:
            for worker in vgpu.caretaker.workers():
                self._why.pop(worker, None)
                self._spent.discard(worker)
            vgpu.why_awake = ""
        self._news.set()

    def told(self, vgpu: VGpu, worker: WorkerProcess, reading: WorkerReading) -> Contexts:
        """Where a program's contexts are, for people."""
        with self._lock:
            why = self._why.get(worker, "")
        if reading.sleep is Sleep.ASLEEP and reading.is_suspended:
            return Contexts(OFF)
        if reading.sleep is not Sleep.NONE and not reading.is_suspended:
            return Contexts(OFF, is_moving=True, why=why)
        is_moving = reading.is_suspended and reading.resident_bytes == 0 and not why
        return Contexts(ON, is_moving=is_moving, why=why if reading.is_suspended else "")

    @contextlib.contextmanager
    def awake(self, vgpu: VGpu) -> Iterator[None]:
        """Until the end of the block all contexts are on the device, and stay there. RefusedError where they cannot be."""
        with self._lock:
            self._held[vgpu] = self._held.get(vgpu, 0) + 1
            thread = self._busy.get(vgpu)
        try:
            if thread is not None:
                thread.join()
            self._bring_back(vgpu, _asleep(vgpu), AWAKE_S)
            if _asleep(vgpu):
                raise RefusedError(
                    f"contexts of {vgpu.name}, which is suspended, are off GPU {vgpu.gpu.number}, and it has no room for them now"
                )
            yield
        finally:
            with self._lock:
                self._held[vgpu] -= 1
                if not self._held[vgpu]:
                    del self._held[vgpu]
            self._news.set()

    # One look

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            self._news.clear()
            try:
                has_more = self._look()
            except Exception:
                log.exception("looking after suspended programs failed; it goes on")
                has_more = True
            self._news.wait(LOOK_S if has_more else None)
            self._is_stopping.wait(_STEP_S)

    def _look(self) -> bool:
        """Whether there is somebody to look after."""
        has_any = False
        vgpus = self._vgpus.all()
        for vgpu in vgpus:
            readings = served(vgpu)
            if any(each.is_suspended or each.sleep for _, each in readings):
                has_any = True
                self._look_at(vgpu, readings)
        with self._lock:
            living = {worker for vgpu in vgpus for worker in vgpu.caretaker.workers()}
            self._why = {worker: why for worker, why in self._why.items() if worker in living}
            self._spent &= living
        return has_any

    def _look_at(self, vgpu: VGpu, readings: Sequence[Reading]) -> None:
        with self._lock:
            if vgpu in self._busy or vgpu in self._held or self._is_stopping.is_set() or vgpu.gpu.failure is not None:
                return
            self._spent |= {worker for worker, each in readings if _is_called(each)}
            back = [
                worker for worker, each in readings if each.sleep and (_is_called(each) or each.sleep is Sleep.STAND)
            ]
            leaving = any(each.is_suspended and each.resident_bytes and each.keeps is Keeps.NOT for _, each in readings)
            tried = self._why.keys() | self._spent
            down = [worker for worker, each in readings if _can_sleep(each) and worker not in tried]
            if back:
                work = lambda: self._bring_back(vgpu, back)  # noqa: E731
            elif down and not leaving:
                work = lambda: self._lay(vgpu, down)  # noqa: E731
            else:
                return
            self._busy[vgpu] = threading.Thread(
                target=self._at_it, args=(vgpu, work), name=f"sleep-{vgpu.name}", daemon=True
            )
            self._busy[vgpu].start()

    def _at_it(self, vgpu: VGpu, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            log.exception("contexts of %s stay where they are", vgpu.name)
            self._is_stopping.wait(_AGAIN_MOST_S)
        finally:
            with self._lock:
                del self._busy[vgpu]
            self._news.set()

    # Off the device

    def _lay(self, vgpu: VGpu, workers: Sequence[WorkerProcess]) -> None:
        """Takes the contexts of these off the device, or tells why they stay."""
        managed = {worker for worker, each in served(vgpu) if Bound.MANAGED in each.bound}
        self._keep(vgpu, {worker: _MANAGED for worker in workers if worker in managed})
        workers = [worker for worker in workers if worker not in managed]
        if not workers:
            return
        try:
            fixed = self._check(vgpu, workers)
            with self._errand_of(vgpu.gpu.device.path) as errand:
                errand.wait()
                self._set(workers, Sleep.STAND)
                standing = self._wait_standing(workers)
                laid = errand.lay(list(standing), vgpu.gpu.device.uuid, vgpu.gpu.device.context_bytes, fixed)
        except (FairGVError, OSError) as error:
            self._set_back(vgpu, workers)
            self._keep(vgpu, {worker: str(error) for worker in workers})
            return
        off = [worker for pid, worker in standing.items() if pid in laid.off]
        on = {worker: plainly(laid.on[pid]) for pid, worker in standing.items() if pid in laid.on}
        unknown = [worker for pid, worker in standing.items() if pid not in laid.off and pid not in laid.on]
        self._set(off, Sleep.ASLEEP, laid.off)
        awake = [worker for worker in workers if worker not in off and worker not in unknown]
        self._set_back(vgpu, awake)
        late = {worker: "its program does not stand still" for worker in awake if worker not in on and _is_idle(worker)}
        self._keep(vgpu, on | late)
        took = ", ".join(f"{step} {ms:.1f} ms" for step, ms in laid.ms.items())
        if off:
            programs = format_programs(len(off))
            log.info("%s: contexts of %s left the device: %s", vgpu.name, programs, took, extra=about(vgpu.name))
        if unknown:
            self._bring_back(vgpu, unknown)
            why = "the process that takes contexts off the device came to no end"
            self._keep(vgpu, {worker: why for worker in unknown if _living(worker) is not None})

    def _check(self, vgpu: VGpu, workers: Sequence[WorkerProcess]) -> int:
        """Makes room in the host's memory for contexts, and says how much they take. RefusedError, OSError: they cannot leave."""
        gpu = vgpu.gpu
        if any(worker.shared is not None for worker in workers):
            raise RefusedError("its programs are clients of one server of the driver's (MPS)")
        if why := self._why_not(gpu):
            raise RefusedError(why)
        readings = [reading for _, reading in served(vgpu)]
        fixed = sum(each.fixed_bytes for each in readings)
        left = host_left(self._vgpus, vgpu, self._config_of())
        if fixed > left:
            raise RefusedError(
                f"they take {format_size(fixed)}, and of the host's {format_size(max(0, left))} are left for them: raise swap_bytes"
            )
        taken = min(gpu.device.memory_bytes, sum(max(each.memory_bytes, each.linear_bytes) for each in readings))
        gpu.workers.allow_memory(vgpu.index, vgpu.region.region_bytes + taken)
        return min(gpu.device.memory_bytes, fixed)

    def _why_not(self, gpu: Gpu) -> str:
        """Why no program of this Gpu can be checkpointed; "": it can."""
        known = gpu.mover.wait(TRIED_S) if self._is_tried else None
        if known is not None or gpu.number in self._proven:
            return known or ""
        if why := self._trial_of(gpu):
            return why
        self._proven.add(gpu.number)
        return ""

    def _wait_standing(self, workers: Sequence[WorkerProcess]) -> dict[int, WorkerProcess]:
        """Those that stand, by pid, once all do that are to sleep still."""
        deadline = time.monotonic() + STAND_S
        while True:
            readings = {worker: reading for worker in workers if (reading := _living(worker)) is not None}
            wanted = {worker: each for worker, each in readings.items() if each.is_suspended}
            standing = {worker.process.pid: worker for worker, each in wanted.items() if each.stage is Stage.STANDS}
            if len(standing) == len(wanted) or time.monotonic() > deadline:
                return standing
            self._is_stopping.wait(_STEP_S)

    def _keep(self, vgpu: VGpu, why: dict[WorkerProcess, str]) -> None:
        if not why:
            return
        with self._lock:
            self._why |= why
            vgpu.why_awake = printable("; ".join(dict.fromkeys(why.values())))
        log.warning("%s: contexts stay on the device: %s", vgpu.name, vgpu.why_awake, extra=about(vgpu.name))

    # Back

    def _bring_back(self, vgpu: VGpu, workers: Sequence[WorkerProcess], most_s: float | None = None) -> None:
        """Returns when they are there, or are to sleep again, or when that takes too long. Those that nobody can bring back are ended."""
        deadline = None if most_s is None else time.monotonic() + most_s
        again_s = _AGAIN_S
        left = list(workers)
        while left:
            self._set(left, Sleep.STAND)
            left = self._bring_back_once(vgpu, left)
            is_held = deadline is None and vgpu in self._held
            if not left or self._is_stopping.is_set() or is_held or vgpu.gpu.failure is not None:
                break
            if deadline is not None and time.monotonic() > deadline:
                break
            self._is_stopping.wait(again_s)
            again_s = min(_AGAIN_MOST_S, again_s * 2)
            left = [worker for worker in left if most_s is not None or not self._sleeps_again(worker)]
        self._set(left, Sleep.ASLEEP)
        vgpu.why_asleep = ""

    def _sleeps_again(self, worker: WorkerProcess) -> bool:
        """It was suspended once more while it waited for room."""
        if not _is_idle(worker):
            return False
        self._set([worker], Sleep.ASLEEP)
        return True

    def _bring_back_once(self, vgpu: VGpu, workers: Sequence[WorkerProcess]) -> list[WorkerProcess]:
        """Those for which there was no room."""
        readings = {worker: reading for worker in workers if (reading := _living(worker)) is not None}
        by_pid = {worker.process.pid: worker for worker in readings}
        if not by_pid:
            return []
        device = vgpu.gpu.device
        due = {pid: min(device.memory_bytes, readings[worker].contexts_due_bytes) for pid, worker in by_pid.items()}
        try:
            with self._errand_of(device.path) as errand:
                errand.wait()
                woken = errand.wake(due, device.uuid, device.context_bytes)
        except FairGVError as error:
            self._wait_for(vgpu, list(readings), str(error))
            return list(readings)
        self._set_back(vgpu, [by_pid[pid] for pid in woken.on])
        lost = {pid: why for pid, why in woken.lost.items() if _living(by_pid[pid]) is not None}
        for pid, why in lost.items():
            log.error("%s: worker %d is ended: %s", vgpu.name, pid, why, extra=about(vgpu.name))
        vgpu.caretaker.end([by_pid[pid] for pid in lost], CUDA_ERROR_DEVICE_UNAVAILABLE)
        if woken.on:
            took = ", ".join(f"{step} {ms:.1f} ms" for step, ms in woken.ms.items())
            programs = format_programs(len(woken.on))
            log.info("%s: contexts of %s are back: %s", vgpu.name, programs, took, extra=about(vgpu.name))
        left = {pid: worker for pid, worker in by_pid.items() if pid not in woken.on and pid not in woken.lost}
        for pid, worker in left.items():
            why = f"GPU {vgpu.gpu.number} has no room for the {format_size(due[pid])} that its contexts take"
            self._wait_for(vgpu, [worker], why)
        return list(left.values())

    def _wait_for(self, vgpu: VGpu, workers: Sequence[WorkerProcess], why: str) -> None:
        with self._lock:
            self._why |= dict.fromkeys(workers, why)
        if vgpu.why_asleep != why:
            vgpu.why_asleep = why
            log.warning("%s: contexts stay off the device: %s", vgpu.name, why, extra=about(vgpu.name))

    def _set_back(self, vgpu: VGpu, workers: Sequence[WorkerProcess]) -> None:
        """They go on as before; returns once they do."""
        self._set(workers, Sleep.NONE)
        deadline = time.monotonic() + STAND_S
        while time.monotonic() < deadline and any(
            reading.stage is Stage.STANDS for worker in workers if (reading := _living(worker)) is not None
        ):
            time.sleep(_STEP_S)
        with self._lock:
            for worker in workers:
                reading = _living(worker)
                if reading is None or not reading.is_suspended:
                    self._why.pop(worker, None)

    @staticmethod
    def _set(workers: Sequence[WorkerProcess], sleep: Sleep, laid_bytes: Mapping[int, int] | None = None) -> None:
        """`laid_bytes`: what their contexts had on the device, by pid."""
        for worker in workers:
            with worker.kept() as is_there:
                if is_there and laid_bytes is not None:
                    worker.at.page.set_laid_bytes(worker.slot, laid_bytes[worker.process.pid])
                if is_there:
                    worker.at.page.set_sleep(worker.slot, sleep)


def _living(worker: WorkerProcess) -> WorkerReading | None:
    """What it says; None: it has ended, or is about to."""
    has_ended = worker.is_ending or worker.is_counted or worker.is_ended.is_set()
    reading = None if has_ended else worker.reading()
    return reading if reading is not None and reading.state is WorkerState.SERVING else None


def _is_idle(worker: WorkerProcess) -> bool:
    """It is suspended still."""
    reading = _living(worker)
    return reading is not None and reading.is_suspended


def _asleep(vgpu: VGpu) -> list[WorkerProcess]:
    return [worker for worker, reading in served(vgpu) if reading.sleep]


def _is_called(reading: WorkerReading) -> bool:
    """Its program called, or it was resumed."""
    return not reading.is_suspended


def _can_sleep(reading: WorkerReading) -> bool:
    is_out = reading.resident_bytes == 0 and reading.keeps is Keeps.NOT and reading.stage is Stage.RUNS
    return reading.is_suspended and is_out and reading.sleep is Sleep.NONE
