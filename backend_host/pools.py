"""Workers that wait for a client, by how they were started: plain ones, and those of a space, whose workers start as the space's."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from backend_host.device.readings import WorkerReading
from backend_host.worker_process import WorkerProcess
from backend_host.worker_start import WorkerStart


class Shared(Protocol):
    """What workers of one pool share beyond a device, as a space's do. From any thread."""

    @property
    def is_open(self) -> bool:
        """Whether workers can be started now."""

    @property
    def most(self) -> int:
        """So many workers at a time, those included that wait for a client; 0: any number."""

    def ask(self, told: Callable[[], None]) -> threading.Event:
        """For a client that is to get a worker. Returns at once; the event is set, and `told` called, as soon as it is known whether workers
        can be started, and those that wait are sound: `is_open`. Else what they share is not to be had, and clients get plain ones."""

    def check_room(self) -> None:
        """Raises ControlPageFullError where there are as many workers as can share it."""

    def page(self) -> contextlib.AbstractContextManager[int]:
        """Until the end of the block a descriptor of memory of the device, which each is given with its client."""

    def end(self, worker: WorkerProcess) -> None:
        """Ends one so that the others lose nothing. Returns at once."""

    def ended(self, status: int, last: WorkerReading | None) -> None:
        """One has, with this exit status, and said this last."""


@dataclass(eq=False)
class Pool:
    """Of one kind. `warm` is for whoever has the lock of its workers."""

    start: WorkerStart
    nr_warm: int
    shared: Shared | None = None
    warm: list[WorkerProcess] = field(default_factory=list)
    nr_failures: int = 0
    """Of workers in a row that ended before they had a client."""

    @property
    def is_open(self) -> bool:
        """Whether workers are to be kept warm now."""
        return self.shared is None or self.shared.is_open

    def claim(self) -> bool:
        """Before a client gets a worker of it, and has asked: whether it can. Raises ControlPageFullError."""
        if self.shared is None:
            return True
        if not self.shared.is_open:
            return False
        self.shared.check_room()
        return True
