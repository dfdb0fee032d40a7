"""Ends work that does not end: a worker whose work has kept other vGPUs from the GPU for too long is ended, and nobody else.

Workers publish since when none of their work has ended. Of those the one that stands still for the longest is to blame: on a device that
works on one kernel after the other, what everybody else has queued behind it stands still as well. Its time counts from when another vGPU
wants the GPU, too; while nobody does, a kernel may run for ever. At half of the limit there is a warning, in the log and in the status; at
the limit its worker is ended.

A worker that its guest took over may publish what is not so. So when work stands still the kernel is asked who keeps the device
(device/occupancy.py). Who does is to blame, whatever it publishes, from when it was first seen to; and nobody else is.

Wrong when: the kernel does not know, as with NVIDIA's driver. Who publishes that nothing of it stands still is then not blamed, but who is
queued behind it. The grant is taken from it all the same (`grants.py`), and a device that preempts shares its time.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from backend_host import hand_overs
from backend_host.device import occupancy
from backend_host.device.control import ControlPage
from backend_host.device.readings import WorkerReading, WorkerState
from backend_host.looking import Looking
from backend_host.service.journal import about

_LOOKS_IN_LIMIT = 20
_LOOK_MAX_S = 1.0
_HAND_OVERS_TOLD = 10
_DOUBT_DIVISOR = 4
"""Who seems to be to blame for a quarter of the limit is doubted. The kernel is asked that often: it takes a millisecond for each worker."""

log = logging.getLogger("fairgv.watchdog")


@dataclass(frozen=True)
class Late:
    """A worker that was warned of: others have waited for its work for so long."""

    slot: int
    late_ns: int


@dataclass
class _Suspect:
    """Whose work stands still while others want the GPU."""

    slot: int
    pid: int
    stalled_since_ns: int
    wanted_since_ns: int
    is_warned: bool = False
    is_ended: bool = False

    def late_ns(self, now_ns: int) -> int:
        return now_ns - max(self.stalled_since_ns, self.wanted_since_ns)


class Watchdog(Looking):
    """One thread over one control page. `end` is called with the slot of a worker that is to be ended, and for how long it kept
    others waiting."""

    def __init__(self, page: ControlPage, limit_ns: int, end: Callable[[int, int], None]) -> None:
        super().__init__("watchdog")
        self._page = page
        self._limit_ns = limit_ns
        self._end = end
        self._suspect: _Suspect | None = None
        self._occupant: occupancy.Occupant | None = None
        self._occupied_since_ns = self._asked_ns = 0

    def late(self) -> Sequence[Late]:
        """Those that were warned of and have not gone on since."""
        suspect = self._suspect
        if suspect is None or not suspect.is_warned:
            return ()
        return (Late(suspect.slot, suspect.late_ns(time.monotonic_ns())),)

    def _run(self) -> None:
        period_s = min(self._limit_ns / 1e9 / _LOOKS_IN_LIMIT, _LOOK_MAX_S)
        while not self._is_stopping.wait(period_s):
            self._tried(self._look_now, log, "a look at whose work keeps others waiting failed")

    def _look_now(self) -> None:
        """All workers are read where there is one to judge."""
        has_stalled = any(want.stalled_since_ns for want in self._page.wants())
        self.look(self._page.workers() if has_stalled else (), time.monotonic_ns())

    def look(self, workers: Sequence[WorkerReading], now_ns: int) -> None:
        """One look at all workers; what the thread does again and again."""
        serving = [worker for worker in workers if worker.state is WorkerState.SERVING]
        blamed = min((worker for worker in serving if worker.stalled_since_ns), key=_since, default=None)
        if blamed is not None and now_ns - blamed.stalled_since_ns > self._limit_ns // _DOUBT_DIVISOR:
            blamed = self._at_it(blamed, serving, now_ns)
        if blamed is None or not _others_want(serving, blamed.vgpu):
            self._suspect = None
            return
        suspect = self._suspect
        if suspect is None or (suspect.slot, suspect.pid) != (blamed.slot, blamed.pid):
            suspect = _Suspect(blamed.slot, blamed.pid, blamed.stalled_since_ns, now_ns)
        if suspect.stalled_since_ns != blamed.stalled_since_ns:
            suspect = _Suspect(blamed.slot, blamed.pid, blamed.stalled_since_ns, suspect.wanted_since_ns)
        self._suspect = suspect
        self._judge(suspect, blamed, now_ns)

    def _at_it(self, blamed: WorkerReading, workers: Sequence[WorkerReading], now_ns: int) -> WorkerReading:
        """Who keeps the device, if the kernel knows, with since when; else the one that is blamed by what workers publish."""
        if len({worker.vgpu for worker in workers}) == 1:
            return blamed
        if now_ns - self._asked_ns > self._limit_ns // _DOUBT_DIVISOR:
            self._asked_ns = now_ns
            self._ask(workers, now_ns)
        keeping = next((worker for worker in workers if self._occupant and worker.pid == self._occupant.pid), blamed)
        return blamed if keeping.vgpu == blamed.vgpu else replace(keeping, stalled_since_ns=self._occupied_since_ns)

    def _ask(self, workers: Sequence[WorkerReading], now_ns: int) -> None:
        occupant = None
        with contextlib.suppress(occupancy.UnknownError):
            occupant = occupancy.occupant([worker.pid for worker in workers if worker.pid])
        if occupant != self._occupant:
            self._occupant, self._occupied_since_ns = occupant, now_ns

    def _judge(self, suspect: _Suspect, worker: WorkerReading, now_ns: int) -> None:
        late_ns = suspect.late_ns(now_ns)
        if late_ns >= self._limit_ns and not suspect.is_ended:
            log.error(
                "%s, %s: its work has kept others from the GPU for %.1f s; its worker %d is ended. The last hand-overs:\n%s",
                *(
                    self._page.called(worker.vgpu),
                    worker.program,
                    late_ns / 1e9,
                    worker.pid,
                    hand_overs.lines(self._page, _HAND_OVERS_TOLD),
                ),
                extra=about(self._page.called(worker.vgpu)),
            )
            self._end(worker.slot, late_ns)
            suspect.is_ended = True
        elif late_ns >= self._limit_ns // 2 and not suspect.is_warned:
            suspect.is_warned = True
            log.warning(
                "%s, %s: its work has kept others from the GPU for %.1f s; at %.1f s its worker %d is ended",
                *(self._page.called(worker.vgpu), worker.program, late_ns / 1e9, self._limit_ns / 1e9, worker.pid),
                extra=about(self._page.called(worker.vgpu)),
            )


def _since(worker: WorkerReading) -> int:
    return worker.stalled_since_ns


def _others_want(workers: Sequence[WorkerReading], vgpu: int) -> bool:
    """Whether another vGPU wants the GPU, or room for its memory there, or has work that stands still there."""
    others = (worker for worker in workers if worker.vgpu != vgpu)
    return any(worker.is_waiting or worker.is_displaced or worker.stalled_since_ns for worker in others)
