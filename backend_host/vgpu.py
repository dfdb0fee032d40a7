"""One vGPU: what it has, and what it did."""

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from backend_host.caretaker import Caretaker
from backend_host.device.gpu import Gpu
from backend_host.device.readings import Sleep, VgpuReading, WorkerReading
from backend_host.devices import Device
from backend_host.entitlement import Entitlement
from backend_host.glance import VGpuGlance
from backend_host.history import WINDOWS_S
from backend_host.limits import Limits
from backend_host.region_memory import Identity
from backend_host.restart.records import VGpuRecord
from backend_host.statistics import ClientStatistics, Totals, VGpuStatistics
from backend_host.window import Window, WindowPeer
from backend_host.worker_process import SERVED
from ivshmem.region import PAGE_BYTES, Region, RegionStatistics, Wake
from ivshmem.told import Told, write_told


@dataclass(frozen=True)
class Place:
    """Where a vGPU is: its number on its Gpu."""

    gpu: Gpu
    index: int


@dataclass(frozen=True)
class Earlier:
    """What a vGPU was charged on Gpus that it was on before this one, in ns, and how often it had their grants."""

    used_ns: int = 0
    held_ns: int = 0
    nr_grants: int = 0

    def plus(self, account: VgpuReading) -> "Earlier":
        """With its account of one Gpu more."""
        return Earlier(
            self.used_ns + account.used_ns, self.held_ns + account.held_ns, self.nr_grants + account.nr_grants
        )


@dataclass(eq=False)
class VGpu:
    """One vGPU with its region and caretaker; `index` is its number on its Gpu. Changed only under the registry's lock."""

    gpu: Gpu
    index: int
    name: str
    kind: str
    entitlement: Entitlement
    region: Region
    file: Identity
    """Of its region."""
    uid: int
    caretaker: Caretaker
    window: Window
    made_on: Device
    """What its guest is told of, whichever it is on now."""
    earlier: Earlier = Earlier()
    coming: Place | None = None
    """Where it is on its way to."""
    is_changing: bool = False
    """Its programs are taken off one device and put on another."""
    peer: WindowPeer | None = None
    nr_users: int = 0
    is_kept: bool = False
    """Whether the daemon is one of the users (service/kept.py)."""
    nr_timed_out: int = 0
    nr_expelled: int = 0
    expelled_for: str = ""
    debtor: str = ""
    """Who is behind it, for `Debts`."""
    totals: Totals = field(default_factory=Totals)
    nr_told: int = 0
    shm_name: str = ""
    """Of a domain's region."""
    has_bells: bool = False
    wake: Wake = Wake.FUTEX
    stranded: str = ""
    """Why its programs are refused since its Gpu has failed."""
    run_id: int = -1
    """Which run of the virtual machine it is; -1: it does not run, as far as is known."""
    why_awake: str = ""
    """Why contexts of its suspended programs stay on the device; "": they need not, or nobody knows yet."""
    why_asleep: str = ""
    """Why contexts of programs that call, or were resumed, are off it still."""
    is_unclaimed: bool = False
    """An earlier daemon's, that its domain, or the file that keeps it, has not asked for yet."""
    heap: RegionStatistics | None = None
    """As last counted."""
    heap_counted_ns: int = 0

    @property
    def item(self) -> str:
        """What the store calls it."""
        return f"vgpu/{self.gpu.number}/{self.index}"

    def record(self) -> VGpuRecord:
        """What the next daemon has to know of it."""
        return VGpuRecord(
            gpu=self.gpu.number,
            index=self.index,
            name=self.name,
            kind=self.kind,
            uid=self.uid,
            entitlement=asdict(self.entitlement),
            region_bytes=self.region.region_bytes,
            shm_name=self.shm_name,
            has_bells=self.has_bells,
            run=self.run_id + 1,
            is_kept=self.is_kept,
            nr_timed_out=self.nr_timed_out,
            nr_expelled=self.nr_expelled,
            expelled_for=self.expelled_for,
            refused=dict(self.caretaker.nr_refused),
            nr_deaths=self.caretaker.nr_deaths,
            totals=asdict(self.totals),
            made_on=self.made_on.uuid,
            earlier=asdict(self.earlier),
            is_changing=self.is_changing,
        )

    def recall(self, record: VGpuRecord) -> None:
        """What an earlier daemon wrote down of it."""
        self.run_id = record.run - 1
        self.is_kept = record.is_kept
        self.nr_timed_out, self.nr_expelled, self.expelled_for = (
            record.nr_timed_out,
            record.nr_expelled,
            record.expelled_for,
        )
        self.caretaker.nr_refused |= {why: nr for why, nr in record.refused.items() if why in self.caretaker.nr_refused}
        self.caretaker.nr_deaths = record.nr_deaths
        self.totals = record.counted()
        self.earlier = Earlier(**record.earlier)

    def statistics(
        self,
        account: VgpuReading,
        all_ns: int,
        entitled_share: float | None,
        demand: float | None,
        limits: Limits,
        heap_age_ns: int,
    ) -> VGpuStatistics:
        """What it is and did. `all_ns`: charged on its Gpu to all. `entitled_share`: beside those that are active. `demand`: of its Gpu, as
        `Gpu.demands` has it. `limits`: what it may have of what all share. `heap_age_ns`: how old what is told of its heap may be."""
        heap = self._count_heap(heap_age_ns)
        readings = self._readings()
        clients = self._clients(readings)
        return VGpuStatistics(
            name=self.name,
            kind=self.kind,
            **vars(self.entitlement),
            gpu_number=self.gpu.number,
            gpu_uuid=self.gpu.device.uuid,
            region_bytes=self.region.region_bytes,
            region_free_bytes=heap.nr_free_pages * PAGE_BYTES,
            heap_used_bytes=sum(heap.nr_client_pages) * PAGE_BYTES,
            memory_bytes=account.memory_bytes,
            used_ns=self.earlier.used_ns + account.used_ns,
            held_ns=self.earlier.held_ns + account.held_ns,
            share=account.used_ns / all_ns if all_ns else 0.0,
            recent_shares=dict(zip(WINDOWS_S, self.gpu.keeper.recent_shares(self.index, account.used_ns), strict=True)),
            entitled_share=entitled_share,
            demand=demand,
            nr_grants=self.earlier.nr_grants + account.nr_grants,
            turn_ns=self.gpu.keeper.turn_ns(self.index),
            late_ns=self._late_ns(),
            nr_timed_out=self.nr_timed_out,
            nr_expelled=self.nr_expelled,
            expelled_for=self.expelled_for,
            limits=limits,
            window_bytes=self.window.mapped_bytes,
            received=self.gpu.keeper.received(self.index),
            refused=dict(self.caretaker.nr_refused),
            nr_worker_deaths=self.caretaker.nr_deaths,
            coscheduling=self.gpu.coscheduler.statistics(self.index),
            totals=self.totals.plus(clients),
            clients=clients,
            is_suspended=any(reading.is_suspended for reading in readings),
            nr_asleep=sum(reading.is_suspended and reading.sleep is Sleep.ASLEEP for reading in readings),
            why_asleep=self.why_asleep,
            why_awake=self.why_awake if any(reading.is_suspended for reading in readings) else "",
        )

    def glance(self, account: VgpuReading, entitled_share: float | None) -> VGpuGlance:
        """What of that changes from second to second."""
        return VGpuGlance(
            name=self.name,
            kind=self.kind,
            gpu_number=self.gpu.number,
            weight=self.entitlement.weight,
            quota_bytes=self.entitlement.quota_bytes,
            used_ns=self.earlier.used_ns + account.used_ns,
            memory_bytes=account.memory_bytes,
            entitled_share=entitled_share,
        )

    def tell_guest(self, account: VgpuReading, entitled_share: float | None) -> None:
        """What it may know of this vGPU. `entitled_share`: beside those that are active."""
        served = self._readings()
        _, ten_seconds, _ = self.gpu.keeper.recent_shares(self.index, account.used_ns)
        entitlement = self.entitlement
        self.nr_told += 1
        told = Told(
            weight=entitlement.weight,
            quota_bytes=entitlement.quota_bytes,
            request_permille=round(entitlement.request * 10),
            limit_permille=round(entitlement.limit * 10),
            entitled_permille=None if entitled_share is None else round(entitled_share * 1000),
            used_permille=round(ten_seconds * 1000),
            used_ns=self.earlier.used_ns + account.used_ns,
            wait_ns=self.totals.wait_ns + sum(reading.wait_ns for reading in served),
            nr_waits=sum(self.totals.nr_waits.values()) + sum(sum(each.nr_waits.values()) for each in served),
            memory_bytes=account.memory_bytes,
        )
        write_told(self.region, self.nr_told, told)

    def _count_heap(self, age_ns: int) -> RegionStatistics:
        now_ns = time.monotonic_ns()
        if self.heap is None or now_ns - self.heap_counted_ns >= age_ns:
            self.heap, self.heap_counted_ns = self.region.statistics(), now_ns
        return self.heap

    def _clients(self, readings: Iterable[WorkerReading]) -> tuple[ClientStatistics, ...]:
        """Of its programs that are served now."""
        of_program = self.gpu.monitor.demand.of_program
        return tuple(ClientStatistics.of(reading, of_program(reading.slot, reading.pid)) for reading in readings)

    def _readings(self) -> list[WorkerReading]:
        """Of its workers that serve, or have just ended."""
        readings = (worker.reading() for worker in self.caretaker.workers() if not worker.is_counted)
        return [reading for reading in readings if reading is not None and reading.state in SERVED]

    def count(self, reading: WorkerReading | None) -> None:
        """Keeps what an ended worker counted."""
        if reading is not None and reading.state in SERVED:
            self.totals = self.totals.plus([ClientStatistics.of(reading)])

    def _late_ns(self) -> int:
        """How long the watchdog has waited for the vGPU's work to end, once that is worth a warning."""
        if not (late := self.gpu.late()):
            return 0
        slots = {worker.slot for worker in self.caretaker.workers()}
        return max((each.late_ns for each in late if each.slot in slots), default=0)
