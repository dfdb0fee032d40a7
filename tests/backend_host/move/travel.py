"""A host of softgpus with a vGPU whose programs are served by real workers, and the moment of change played: the driver's part is elsewhere."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend_host.worker._worker import lib

from backend_host.config import Config
from backend_host.device.gpu import Gpu, serving
from backend_host.device.readings import WorkerReading
from backend_host.devices import Device
from backend_host.entitlement import PLAIN, Entitlement
from backend_host.move.checkpointing import Checkpointer, Outcome
from backend_host.move.moves import Moves
from backend_host.move.moving import Move
from backend_host.move.words import AUTO
from backend_host.restart.store import Store
from backend_host.vgpu import VGpu
from backend_host.vgpus import VGpuRegistry
from backend_host.walls import cgroups
from ivshmem.region import ClientState, HostState
from tests.backend_host.swapping import DEVICE, SPAN
from tests.backend_host.worker_guest import PRIMARY, Guest, wait_for_state
from tests.backend_host.worker_harness import WALLS, walls_here
from tests.end_to_end.host import wait_until

REGION_BYTES = 64 << 20
ME = 1000
MOVED = Outcome(True, {}, "", {"lock": 0.5, "checkpoint": 400.0})
LIMIT_S = 60


class Notes(Store):
    """What a daemon that dies now has left: records by names."""

    def __init__(self) -> None:
        super().__init__()
        self.items: dict[str, Mapping[str, Any]] = {}

    def put(
        self,
        name: str,
        record: Mapping[str, Any],
        fds: Sequence[int] = (),
        *,
        has_life: bool = False,
        drop: Sequence[str] = (),
    ) -> None:
        for each in drop:
            self.items.pop(each, None)
        self.items[name] = record

    def drop(self, *names: str) -> None:
        for name in names:
            self.items.pop(name, None)

    def names(self, kind: str) -> list[str]:
        return sorted(name for name in self.items if name.startswith(f"{kind}/"))


@dataclass
class Travel:
    """The host, and what is on it."""

    gpus: list[Gpu]
    registry: VGpuRegistry
    notes: Notes
    config: Config
    guests: list[Guest] = field(default_factory=list)
    outcome: Callable[[Sequence[int]], Outcome] = lambda pids: MOVED
    fixed_bytes: int = 0
    """What the driver was told that it has to move."""

    def __post_init__(self) -> None:
        self.moves = Moves(
            self.registry, self.gpus, lambda _: nullcontext(), lambda: self.config, lambda _: PlayedChanger(self)
        )

    def opened(self, name: str = "web", entitlement: Entitlement = PLAIN, gpu: int = 0) -> VGpu:
        """A vGPU on this Gpu."""
        vgpu = self.registry.open_session(name, entitlement, REGION_BYTES, ME)
        assert vgpu.gpu is self.gpus[gpu]
        return vgpu

    def program(self, vgpu: VGpu, client: int = 0, *, waits: bool = False) -> Guest:
        """One more, with its context; `waits`: it is not served yet."""
        guest = Guest(vgpu.region, client)
        self.guests.append(guest)
        vgpu.region.announce()
        if not waits:
            self.begin(guest)
            wait_until(lambda: client in clients(vgpu), "the daemon knows its worker")
        return guest

    def program_after_reset(self, vgpu: VGpu) -> Guest:
        """The first one, once the region is laid out anew."""
        for guest in self.guests:
            guest.stop_beating()
        wait_until(lambda: not vgpu.caretaker._must_renew and vgpu.region.host_state is HostState.UP, "it is laid out")
        return self.program(vgpu)

    @staticmethod
    def begin(guest: Guest) -> None:
        """Once it is served."""
        states = {ClientState.READY, ClientState.REFUSED}
        assert wait_for_state(guest.region, guest.index, states) is ClientState.READY
        guest.ok("context_create", context=0, handle=PRIMARY, is_primary=1)
        guest.ok("span_open", address=SPAN, bytes=4 * DEVICE)

    def move(self, vgpu: VGpu, to: int = 1, mover: str = AUTO) -> Move:
        """To its end."""
        move = self.moves.start(vgpu.name, str(to), mover)
        assert move.wait(LIMIT_S)
        return move

    def remove(self, name: str) -> None:
        """The vGPU goes, with its region, where its programs write nothing any more."""
        for guest in self.guests:
            guest.stop_beating()
        self.registry.remove(name)

    def check_nothing_left(self, vgpus: Mapping[int, int], workers: Mapping[int, int]) -> None:
        """But so many places and slots, by Gpus' numbers."""
        for gpu in self.gpus:
            number = gpu.number
            nr_vgpus, nr_workers = vgpus.get(number, 0), workers.get(number, 0)
            assert len(gpu.page.vgpus()) == nr_vgpus, f"places on GPU {number}"
            assert len(gpu.page.workers()) == nr_workers, f"slots on GPU {number}"
            assert len(gpu.workers._all) == nr_workers, f"workers of GPU {number}"
            assert len(gpu.workers._said._pipes) == nr_workers, f"pipes of GPU {number}"
            assert len(self.notes.names(f"vgpu/{number}")) == nr_vgpus
            assert len(self.notes.names(f"worker/{number}")) == nr_workers
            groups = gpu.workers._plain.start.groups
            if groups is not None:
                assert len(groups._groups) == int(nr_workers > 0), f"cgroups of GPU {number}"
        wait_until(
            lambda: not [each for each in threading.enumerate() if each.name.startswith("move-")], "no move goes on"
        )

    def close(self) -> None:
        self.moves.stop()
        for guest in self.guests:
            guest.stop_beating()
        self.registry.remove_all()


class PlayedChanger(Checkpointer):
    """Whose outcome is the test's to say."""

    def __init__(self, travel: Travel) -> None:
        self._travel = travel

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self) -> None:
        pass

    def change(self, pids: Sequence[int], origin: str, target: str, fixed_bytes: int = 0) -> Outcome:
        self._travel.fixed_bytes = fixed_bytes
        return self._travel.outcome(pids)


def clients(vgpu: VGpu) -> set[int]:
    """Whom its workers serve."""
    return {worker.record.client for worker in vgpu.caretaker.workers() if worker.record is not None}


def reading(vgpu: VGpu, number: int = 0) -> WorkerReading:
    """Of one of its workers."""
    found = vgpu.caretaker.workers()[number].reading()
    assert found is not None
    return found


@contextlib.contextmanager
def travelling(devices: Sequence[Device], state_dir: Path, *, is_fast: bool = False) -> Iterator[Travel]:
    """Its workers are in cgroups, where there are some."""
    names = walls_here() & {"cgroup"}
    tree = cgroups.find() if names else None
    config = Config(
        state_dir=state_dir,
        nr_warm_workers=0,
        walls=WALLS,
        fast_moves=is_fast,
        swap_bytes=sum(each.memory_bytes for each in devices),
    )
    notes = Notes()
    with contextlib.ExitStack() as stack:
        gpus = [
            stack.enter_context(serving(number, device, config, names, tree, notes, peers=devices))
            for number, device in enumerate(devices)
        ]
        for gpu in gpus:
            gpu.mover.set("")
        travel = Travel(gpus, VGpuRegistry(gpus, lib.fgw_table_hash(), store=notes), notes, config)
        try:
            yield travel
        finally:
            travel.close()
        travel.check_nothing_left({}, {})
