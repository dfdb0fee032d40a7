"""Makes a vGPU's parts and puts them together: region, window, caretaker. The registry says which vGPU, and when its region is opened."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from backend_host.caretaker import Caretaker, Home, Owner
from backend_host.debts import Debts
from backend_host.devices import Device, with_quota
from backend_host.entitlement import Entitlement
from backend_host.limits import Limits
from backend_host.region_memory import identity
from backend_host.restart.store import Store
from backend_host.vgpu import Place, VGpu
from backend_host.walls.tenants import name_of
from backend_host.window import Window
from backend_host.worker_process import WorkerProcess
from ivshmem.bells import Bells
from ivshmem.region import Region, Wake


@dataclass(frozen=True)
class Wanted:
    """What a vGPU is to be. `shm_name`: of a domain's region; `bells`: where its machine has some."""

    name: str
    kind: str
    entitlement: Entitlement
    uid: int
    wake: Wake
    is_paused: Callable[[], bool] = lambda: False
    bells: Bells | None = None
    shm_name: str = ""
    made_on: Device | None = None
    """Which its guest is told of; None: its Gpu's."""


@dataclass(frozen=True)
class Making:
    """Of one daemon. `collect` is called from a reaper's thread with a worker that has ended."""

    table_hash: int
    debts: Debts
    store: Store
    collect: Callable[[Region, WorkerProcess], None]

    def make(self, place: Place, wanted: Wanted, memory: int, limits: Limits) -> VGpu:
        """Takes over the descriptor `memory`. Raises OSError, ValueError or RuntimeError, and leaves nothing behind then."""
        gpu, index = place.gpu, place.index
        device = wanted.made_on or gpu.device
        file = identity(memory)
        region = Region(wanted.name, memory, os.fstat(memory).st_size)
        with contextlib.ExitStack() as undo:
            undo.callback(region.close)
            window = Window(wanted.name, region, self.store, gpu.number, index)
            debtor = f"user {wanted.uid}" if wanted.kind == "session" else f"{wanted.kind} {wanted.name}"
            home = self.home(place, region, wanted.wake, device.facts)
            caretaker = self._caretaker(home, wanted, region, window, debtor, limits)
            vgpu = VGpu(
                *(
                    gpu,
                    index,
                    wanted.name,
                    wanted.kind,
                    wanted.entitlement,
                    region,
                    file,
                    wanted.uid,
                    caretaker,
                    window,
                    device,
                ),
                debtor=debtor,
                shm_name=wanted.shm_name,
                has_bells=wanted.bells is not None,
                wake=wanted.wake,
            )
            undo.pop_all()
        return vgpu

    def home(self, place: Place, region: Region, wake: Wake, facts: bytes) -> Home:
        """What the caretaker of this region has of its place. `facts`: what the guest is told of its device."""
        gpu, index = place.gpu, place.index

        def lay_out() -> None:
            account = gpu.page.vgpu(index)
            told = with_quota(facts, account.quota_bytes if account is not None else 0)
            region.format(table_hash=self.table_hash, facts=told, wake=wake)
            if wake is not Wake.FUTEX:
                # Laying out gave the heap's memory back; a virtual machine's is to be there when it is needed.
                os.posix_fallocate(region.fileno(), 0, region.region_bytes)

        return Home(gpu.workers, index, lay_out)

    def _caretaker(
        self, home: Home, wanted: Wanted, region: Region, window: Window, debtor: str, limits: Limits
    ) -> Caretaker:
        bells = wanted.bells
        if bells is not None:
            region.listen(bells.daemon_fd)
        return Caretaker(
            region,
            Owner(wanted.name, home.vgpu, self.table_hash, name_of(wanted.kind, wanted.name, wanted.uid)),
            home.workers,
            on_worker_end=lambda worker: self.collect(region, worker),
            format_region=home.format_region,
            is_paused=wanted.is_paused,
            bells=bells,
            window=window,
            nr_clients=limits.clients,
            is_banned=lambda: self.debts.is_banned(debtor),
        )
