"""A region in front of its caretaker, for tests.

The guest is the bytes of the region; the workers handed out are no processes; time is handed in.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from backend_host.caretaker import Caretaker, Owner
from backend_host.device.control import ControlPage
from backend_host.worker_process import Slot, WorkerProcess
from backend_host.workers import Assignment, Workers
from ivshmem.region import ClientState, HostState, Region, Wake, ffi, lib

CLIENTS_OFFSET, CLIENT_BYTES, BEAT_OFFSET = 4096 + 65536, 320, 192


class PlayedWorker(WorkerProcess):
    """A worker that ends when the test says so."""

    def __init__(self, slot: int) -> None:
        self.at = Slot(ControlPage(ffi.NULL), slot)
        self.is_ended = threading.Event()
        self.is_stopped = False
        self.is_counted = False
        self.on_end = None
        self.patient: list[bool] = []

    def set_patient(self, is_patient: bool) -> None:
        self.patient.append(is_patient)

    def stop(self) -> None:
        self.is_stopped = True

    def end(self, status: int = -9) -> None:
        assert self.on_end is not None
        self.on_end(self, status)
        self.is_ended.set()


class PlayedWorkers(Workers):
    """Hands out played workers, or an error."""

    def __init__(self) -> None:
        self.workers: list[PlayedWorker] = []
        self.assignments: list[Assignment] = []
        self.during_assign: Callable[[], object] = lambda: None
        self.error: Exception | None = None
        self.sign: threading.Event | None = None
        """Of what its workers share."""
        self.asked: list[Callable[[], None]] = []

    def ask(self, vgpu: int, told: Callable[[], None]) -> threading.Event | None:
        self.asked.append(told)
        return self.sign

    def assign(self, assignment: Assignment, on_end: Callable[[WorkerProcess, int], None]) -> WorkerProcess:
        if self.error is not None:
            raise self.error
        self.during_assign()
        self.assignments.append(assignment)
        self.workers.append(PlayedWorker(len(self.workers)))
        self.workers[-1].on_end = on_end
        return self.workers[-1]


@dataclass
class Scene:
    """A region, what looks after it, and the guest's pen."""

    region: Region
    played: PlayedWorkers = field(default_factory=PlayedWorkers)
    nr_formats: int = 0
    nr_questions: int = 0
    is_paused: bool = False
    ended: list[WorkerProcess] = field(default_factory=list)
    during_format: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.caretaker = self.made()
        self._format()
        self.region.set_host_state(HostState.UP)

    def made(self, nr_clients: int = 0) -> Caretaker:
        owner = Owner(name="vm", vgpu=3, table_hash=7, tenant="domain-vm")
        return Caretaker(
            self.region, owner, self.played, self.ended.append, self._format, self._ask, nr_clients=nr_clients
        )

    def _format(self) -> None:
        self.nr_formats += 1
        self.region.format(table_hash=7, wake=Wake.FUTEX)
        self.during_format()

    def _ask(self) -> bool:
        self.nr_questions += 1
        return self.is_paused

    def write(self, index: int, state: int) -> None:
        """The guest writes a state, whatever was there."""
        assert self.region.step(index, self.region.client(index).state, state)  # type: ignore[arg-type]

    def beat(self, index: int, beat: int) -> None:
        offset = CLIENTS_OFFSET + index * CLIENT_BYTES + BEAT_OFFSET
        os.pwrite(self.region.fileno(), beat.to_bytes(8, "little"), offset)

    def take_pages(self, index: int) -> None:
        assert lib.fgv_heap_allocate(self.region.c_region, index, 1 << 20) != lib.FGV_HEAP_NONE

    def nr_pages(self, index: int) -> int:
        return self.region.statistics().nr_client_pages[index]

    def state(self, index: int) -> int:
        return self.region.client(index).state

    def host_state(self) -> HostState | None:
        return self.region.host_state

    def serve(self, index: int, now_ns: int = 0) -> PlayedWorker:
        """A client that says hello and is served."""
        self.write(index, ClientState.HELLO)
        self.caretaker.look(now_ns)
        assert self.region.step(index, ClientState.HELLO, ClientState.READY)
        return self.played.workers[-1]


@contextlib.contextmanager
def played_scene() -> Iterator[Scene]:
    """A region of its own for the block."""
    fd = os.memfd_create("region")
    os.ftruncate(fd, 32 << 20)
    region = Region("caretaker", fd, 32 << 20)
    yield Scene(region)
    region.close()
