"""One worker as the daemon has it: its process, its socket, and its slot in the page of a Gpu."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from backend_host.device.control import ControlPage
from backend_host.device.readings import WorkerReading, WorkerState
from backend_host.restart.records import WorkerRecord
from backend_host.walls.start import Child

_END_S = 10.0
SERVED = (WorkerState.SERVING, WorkerState.ENDED)

log = logging.getLogger("fairgv.workers")


@dataclass(frozen=True)
class Slot:
    """A numbered place in a page. `before`: the one that the worker comes from, until it says that it is here."""

    page: ControlPage
    number: int
    before: "Slot | None" = None

    def reading(self) -> WorkerReading | None:
        """What the worker says here, or where it comes from as long as it says nothing here."""
        reading = self.page.worker(self.number)
        if self.before is None or (reading is not None and reading.state in SERVED):
            return reading
        return self.before.reading()


class Ender(Protocol):
    """Ends workers that share something."""

    def end(self, worker: "WorkerProcess") -> None:
        """Ends it so that the others lose nothing. Returns at once."""


@dataclass(eq=False)
class WorkerProcess:
    """One child, of this daemon or of an earlier one. `on_end` is called once, from a reaper's thread, after it was reaped and its slot
    repaired."""

    at: Slot
    process: Child
    socket: socket.socket
    on_end: Callable[["WorkerProcess", int], None] | None = None
    record: WorkerRecord | None = None
    """What the next daemon has to know of it; None: it has no client."""
    is_counted: bool = False
    """What it did is in its vGPU's totals already."""
    last: WorkerReading | None = None
    """What it had done when it ended."""
    is_ending: bool = False
    """It has ended, and a reaper is at it."""
    is_patient: bool = False
    shared: "Ender | None" = None
    """Whose end others feel, unless this ends it."""
    is_told_to_end: bool = False
    is_ended: threading.Event = field(default_factory=threading.Event)
    _pidfd_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def slot(self) -> int:
        """In the page of its Gpu."""
        return self.at.number

    @property
    def item(self) -> str:
        """What the store calls one that has a client."""
        return "" if self.record is None else f"worker/{self.record.gpu}/{self.record.slot}"

    def reading(self) -> WorkerReading | None:
        """What it says of itself now."""
        return self.at.reading()

    def set_patient(self, is_patient: bool) -> None:
        """While its VM stands still, a worker must not take a beat that stands still for the end of its client."""
        with self.kept() as is_there:
            self.is_patient = is_patient
            if is_there:
                self.at.page.set_patient(self.slot, is_patient)

    def go_to(self, page: ControlPage, slot: int) -> None:
        """It gets another slot. One that was told to be patient stays so."""
        with self._pidfd_lock:
            page.set_patient(slot, self.is_patient)
            self.at = Slot(page, slot, before=self.at)

    def ordinal_of(self, uuid: str) -> int | None:
        """Of the device with this UUID, as it counts those that it can go to by itself; None: it cannot go to that one."""
        seen = [] if self.record is None else self.record.sees.split(",")
        return seen.index(uuid) if uuid in seen else None

    def exchange(self, one: str, other: str) -> None:
        """The driver has put one of these devices in the other's place for it: it counts them so from now on."""
        if self.record is not None:
            places = {one: other, other: one}
            sees = ",".join(places.get(uuid, uuid) for uuid in self.record.sees.split(","))
            self.record = replace(self.record, sees=sees)

    def settle(self) -> Slot | None:
        """It is there, or it has ended: gives the slot before, which is nobody's from now on."""
        with self._pidfd_lock:
            before, self.at = self.at.before, replace(self.at, before=None)
            return before

    def stop(self) -> None:
        """Ends it from outside; for a client that is gone or a daemon that stops. At once, or as what it shares with others has it."""
        if self.shared is None:
            self.kill()
            return
        with self._pidfd_lock:
            is_told, self.is_told_to_end = self.is_told_to_end, True
        if not is_told:
            self.shared.end(self)

    def kill(self) -> None:
        """Ends it at once."""
        with self._pidfd_lock:
            self.process.kill()

    @contextlib.contextmanager
    def kept(self) -> Iterator[bool]:
        """Until the end of the block its socket stays open and its slot its own; False: it was reaped already."""
        with self._pidfd_lock:
            yield self.process.pidfd >= 0

    def forget_process(self) -> None:
        """After it was reaped: its number is somebody else's from now on, and nobody gives it a client any more."""
        with self._pidfd_lock:
            self.process.close()

    def close(self) -> None:
        """After it was reaped, and when nobody reads its socket."""
        self.forget_process()
        self.socket.close()


def stop_all(workers: Iterable[WorkerProcess]) -> None:
    """Ends them and waits. One that a driver keeps from ending, uninterruptibly, is named in the log and left behind."""
    stopped = list(workers)
    for worker in stopped:
        worker.stop()
    deadline = time.monotonic() + _END_S
    for worker in stopped:
        if not worker.is_ended.wait(max(0.0, deadline - time.monotonic())):
            log.error("worker %d does not end; the device library holds it", worker.process.pid)
